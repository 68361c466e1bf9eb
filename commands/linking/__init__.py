"""Linking the ends of channels that belong to one person (delivery.md, Linking)."""
