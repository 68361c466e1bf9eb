"""Conversations at work: their commands, and the runner that takes their turns over."""
