"""What redaction may refuse, wherever the rules come from."""

from __future__ import annotations

from .errors import Invalid


class KeyCollision(Invalid):
    """Two member names of one object become one once their secrets are taken out (rooms.md, Redaction)."""

    def __init__(self, path: str) -> None:
        message = "two member names become one once secrets are taken out of them; rename one"
        super().__init__(f"{path}: {message}", [{"path": path, "message": message}])
