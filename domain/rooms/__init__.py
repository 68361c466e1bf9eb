"""The room aggregate: what can happen in a room, and who may make it happen."""
