"""Tools that agents call, each behind the port of commands/conversations/ports.py."""
