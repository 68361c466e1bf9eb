"""Providers of models, each behind the port of commands/conversations/ports.py."""
