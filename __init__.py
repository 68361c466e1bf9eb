"""Minutebook: rooms and conversations that people and AI agents share, on a log that nobody can rewrite."""

__version__ = "0.1.0"
