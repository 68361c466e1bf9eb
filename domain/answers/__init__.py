"""Where the answer to a turn goes: what is asked for, what it comes to, and how it ends."""
