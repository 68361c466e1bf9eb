"""The pure core: aggregates, events, value objects and policies. No I/O, no clock, no randomness."""
