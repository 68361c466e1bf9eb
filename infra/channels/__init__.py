"""Channels: one module for each kind of way in and out (delivery.md)."""
