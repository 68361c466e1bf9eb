"""Channels: the ways in and out of the server for people who are elsewhere (delivery.md)."""
