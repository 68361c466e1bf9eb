"""What callers may ask, and the dispatcher that decides and appends it."""
