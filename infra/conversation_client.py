"""A conversation as its owner's client has it: followed over SSE, found by its handle, read page by page."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import msgspec

from ..domain.ids import is_conversation_id
from .api_client import Api, Refused, TokenSource
from .sse_client import Frame, StreamBroken, StreamFollower

PAGE = 200
"""Entries and conversations asked for at a time: what the server takes (http.md, Conversations)."""

_CURSOR = re.compile(r"[0-9]{1,10}\.([0-9]{1,16})")


class ConversationFollower(StreamFollower):
    """Follows one conversation: frames `status`, `message`, `partial`, `delta`, `reset`, `error`, `reconnect`.

    Every message comes once and in order; what a running reply has after a cut comes as `partial`, from its first word.
    tail: records to begin with. cursor: of the last message that was handed on.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        token: TokenSource,
        conversation_id: str,
        *,
        tail: int = 0,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(client, token, f"/v1/conversations/{conversation_id}/events", notice)
        self.cursor: str | None = None
        self._tail = tail
        self._ord = 0

    def _position(self) -> tuple[str | None, dict[str, str | int]]:
        return (None, {"tail": self._tail}) if self.cursor is None else (self.cursor, {})

    def _moves(self, frame: Frame) -> bool:
        if frame.event == "message":
            found = _CURSOR.fullmatch(frame.id or "")
            if found is None:
                raise StreamBroken("A message came without its cursor.")
            if int(found[1]) <= self._ord:
                return False
            self.cursor, self._ord = frame.id, int(found[1])
        elif frame.event == "status" and self.cursor is None:
            self.cursor = str(said(frame).get("cursor"))
        return True


def said(frame: Frame) -> dict[str, Any]:
    """What a frame says. Raises StreamBroken."""
    try:
        return msgspec.json.decode(frame.data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise StreamBroken(f"A {frame.event[:20]} frame of the stream cannot be read.") from error


async def owned(api: Api) -> AsyncGenerator[dict[str, Any]]:
    """The caller's conversations, newest first. Raises as Api.call."""
    params: dict[str, str | int] = {"limit": PAGE}
    while True:
        page = await api.call("GET", "/v1/conversations", params=params)
        for line in page["conversations"]:
            yield line
        if "nextCursor" not in page:
            return
        params["cursor"] = page["nextCursor"]


async def id_of(api: Api, name: str) -> str:
    """The id of the caller's conversation with that id or handle. Raises Refused (404) where there is none."""
    if is_conversation_id(name):
        return name
    async for line in owned(api):
        if line.get("handle") == name:
            return str(line["id"])
    raise Refused(404, "not_found", "You have no conversation with that handle.")


async def entries(api: Api, conversation_id: str) -> AsyncGenerator[dict[str, Any]]:
    """The whole history, oldest first. Raises as Api.call."""
    params: dict[str, str | int] = {"limit": PAGE, "direction": "forward"}
    while True:
        page = await api.call("GET", f"/v1/conversations/{conversation_id}/history", params=params)
        for entry in page["entries"]:
            yield entry
        if page["done"]:
            return
        params["cursor"] = page["nextCursor"]


async def newest(api: Api, conversation_id: str, count: int) -> list[dict[str, Any]]:
    """The last `count` entries, oldest first. Raises as Api.call."""
    found: list[dict[str, Any]] = []
    params: dict[str, str | int] = {"direction": "backward"}
    while len(found) < count:
        params["limit"] = min(PAGE, count - len(found))
        page = await api.call("GET", f"/v1/conversations/{conversation_id}/history", params=params)
        found += page["entries"]
        if page["done"]:
            break
        params["cursor"] = page["nextCursor"]
    return found[::-1]
