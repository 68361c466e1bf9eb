"""The job engine: procrastinate in its own schema, an outbox that feeds it from the log, and sweeps by the clock."""
