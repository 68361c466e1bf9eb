"""A verb that asks a server: the options that find it and prove who asks, and what goes over the wire."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import IO, Any, TypeVar
from urllib.parse import quote

import httpx

from ...domain.principals import DEFAULT_TENANT
from ..api_client import Api, TokenSource, refusal_of, unreachable
from .access import (
    DEFAULT_URL,
    MEMBERS,
    OPERATOR,
    PrincipalName,
    Tenant,
    Token,
    TokenFile,
    Url,
    client_of,
    guarded_call,
    tokens_of,
)
from .common import DataDir, Json, print_json

KEY_BYTES = 16
"""Randomness of the idempotency key of a command: what is sent twice because its answer was lost acts once."""

DOWNLOAD_CHUNK_BYTES = 1 << 16

Params = Mapping[str, str | int]

T = TypeVar("T")


class Server:
    """The server that a verb asks, as one principal. is_json: whether its answers are printed for scripts."""

    def __init__(self, url: str, tokens: TokenSource, *, is_json: bool) -> None:
        self.is_json = is_json
        self._url = url
        self._tokens = tokens

    def get(self, path: str, params: Params | None = None) -> dict[str, Any]:
        """What the server knows. Raises Refused and Unreachable."""
        return asyncio.run(self._call("GET", path, None, params, None))

    def tell(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The answer to a command, which acts once however often it had to be sent. Raises as get."""
        return asyncio.run(self._call(method, path, body, None, secrets.token_hex(KEY_BYTES)))

    def pages(self, path: str, params: Params, cursor: str, following: Callable[[Any], Any]) -> list[dict[str, Any]]:
        """All pages of a read: `following` finds in one what the parameter `cursor` of the next one is, or None."""
        return asyncio.run(self._pages(path, dict(params), cursor, following))

    def download(self, path: str, sink: IO[bytes], params: Params | None = None) -> bytes:
        """An answer's body into `sink`; its last line. Raises as get; never retried, since a part is written."""
        return asyncio.run(self._download(path, sink, params))

    def run(self, work: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        """What `work` makes of several calls. Raises as get, and as `work` does."""

        async def body() -> T:
            async with client_of(self._url) as client:
                return await work(Api(client, self._tokens))

        return asyncio.run(body())

    def answered(self, answer: dict[str, Any], words: Callable[[], None]) -> None:
        """The answer as JSON, or `words` for people."""
        if self.is_json:
            print_json(answer)
        else:
            words()

    async def _call(self, method: str, path: str, body: Any, params: Params | None, key: str | None) -> dict[str, Any]:
        async with client_of(self._url) as client:
            return await Api(client, self._tokens).call(method, path, body, key=key, params=params)

    async def _pages(
        self, path: str, params: dict[str, str | int], cursor: str, following: Callable[[Any], Any]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with client_of(self._url) as client:
            api = Api(client, self._tokens)
            while True:
                found.append(await api.call("GET", path, params=params))
                at = following(found[-1])
                if at is None:
                    return found
                params[cursor] = at

    async def _download(self, path: str, sink: IO[bytes], params: Params | None) -> bytes:
        last = b""
        headers = {"authorization": f"Bearer {self._tokens()}"}
        async with client_of(self._url) as client:
            try:
                async with client.stream("GET", path, headers=headers, params=params) as response:
                    if not response.is_success:
                        raise refusal_of(response, await response.aread())
                    async for chunk in response.aiter_bytes(DOWNLOAD_CHUNK_BYTES):
                        sink.write(chunk)
                        last += chunk
                        last = last[last.rfind(b"\n", 0, -1) + 1 :]  # its line break is kept: what follows is another
            except httpx.TransportError as error:
                raise unreachable(client, error) from error
        return last.rstrip()


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def online_as(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `online`; where no token is given, a person's development token is of these groups."""

    def made(verb: Callable[..., None]) -> Callable[..., None]:
        def run(
            *,
            data_dir: DataDir = None,
            url: Url = DEFAULT_URL,
            token: Token = None,
            token_file: TokenFile = None,
            principal: PrincipalName = OPERATOR,
            tenant: Tenant = DEFAULT_TENANT,
            json: Json = False,
            **own: Any,
        ) -> None:
            with guarded_call():
                tokens = tokens_of(data_dir, token, token_file, principal, tenant, groups)
                verb(Server(url, tokens, is_json=json), **own)

        shared = [
            each for each in inspect.signature(run, eval_str=True).parameters.values() if each.kind is each.KEYWORD_ONLY
        ]
        _, *own = inspect.signature(verb, eval_str=True).parameters.values()
        # What typer reads a verb's parameters from; their order is that of the help.
        run.__signature__ = inspect.Signature([*own, *shared])  # pyright: ignore[reportFunctionMemberAccess]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
        run.__name__, run.__doc__, run.__module__ = verb.__name__, verb.__doc__, verb.__module__
        return run

    return made


def online(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose first parameter is a Server, as one that takes the options that make it instead."""
    return online_as(MEMBERS)(verb)
