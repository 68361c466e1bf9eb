"""Ends of channels that belong to one person, linked from both sides (delivery.md, Linking)."""
