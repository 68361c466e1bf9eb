"""Redaction: secrets are taken out of everything before it is stored or streamed (rules.md, law 28)."""
