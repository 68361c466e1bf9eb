"""Channels as commands use them."""
