"""Adapters to the world outside: PostgreSQL, tokens, settings, telemetry, the command line."""
