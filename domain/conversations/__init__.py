"""Conversations: durable dialogues with an agent that the server runs, as pure decisions and folds."""
