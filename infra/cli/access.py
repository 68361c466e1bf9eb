"""How the verbs that talk to a server find it and prove who they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import typer

from ...domain.ids import is_room_id
from ...domain.principals import DEFAULT_TENANT, Principal
from ..api_client import Refused, TokenSource, Unreachable, make_client
from ..dev_issuer import DevelopmentIssuer
from ..settings import Settings, SettingsError
from .common import FINDING, UNAVAILABLE, USAGE, fail, guarded, settings_of
from .render import printable

DEFAULT_URL = "http://127.0.0.1:8080"
OPERATOR = "human:operator"
MEMBERS = "agents-member"
TOKEN_TTL_S = 3600
"""Life of a token that a verb makes for itself; it makes a new one for every request."""

MAX_TOKEN_BYTES = 64 * 1024

Url = Annotated[str, typer.Option(help="Where the server is.")]
Token = Annotated[
    str | None,
    typer.Option(
        help="A bearer token; better --token-file, since others see a command's arguments.", show_default=False
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="A file with the bearer token; - reads it from stdin.", show_default=False)
]
PrincipalName = Annotated[
    str, typer.Option("--principal", help="Without a token: whose token the development issuer makes.")
]
Tenant = Annotated[str, typer.Option(help="Without a token: the tenant that it speaks for.")]

_STATE_REFUSALS = frozenset({409, 410})


@contextmanager
def guarded_call() -> Generator[None]:
    """`guarded`, and what a server may answer: unavailable (3), refused by how things stand (1), a wrong call (2)."""
    with guarded():
        try:
            yield
        except Unreachable as error:
            fail(printable(str(error)), UNAVAILABLE)
        except Refused as error:
            fail(printable(_advice(error)), _code(error))


def _code(error: Refused) -> int:
    if error.status >= 500 or error.status == 429:
        return UNAVAILABLE
    return FINDING if error.status in _STATE_REFUSALS or error.code == "run_not_live" else USAGE


def _advice(error: Refused) -> str:
    match error.status:
        case 401:
            return f"{error.detail} Is --data-dir the one that the server uses, or the token still valid?"
        case 404:
            return f"{error.detail} Check the id, and that this principal may see it."
        case _:
            return error.detail


def client_of(url: str) -> httpx.AsyncClient:
    """A client of the server at `url`; a URL that is none ends the verb."""
    try:
        return make_client(url)
    except (ValueError, httpx.InvalidURL) as error:
        fail(f"--url: {printable(str(error))}", USAGE)


def room_of(text: str) -> str:
    """A room's id as people give it, with or without `room:`; another text ends the verb."""
    room_id = text.removeprefix("room:")
    if not is_room_id(room_id):
        fail(f"{printable(text)!r} is not the id of a room, which is 8 characters of a-z and 2-7.", USAGE)
    return room_id


def given_token(token: str | None, token_file: Path | None) -> str | None:
    """The token of the options, None where there is none. What is no token ends the verb; nothing of it is shown."""
    if token is not None and token_file is not None:
        fail("Give --token or --token-file, not both.", USAGE)
    if token_file is not None:
        try:
            raw = sys.stdin.read(MAX_TOKEN_BYTES) if str(token_file) == "-" else _read(token_file)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            fail(f"--token-file: {token_file} cannot be read ({reason}).", USAGE)
        token = raw.strip()
    if token is not None and (not token or not token.isascii() or any(char.isspace() for char in token)):
        fail("The token is empty or has characters that no token has; copy it whole, on one line.", USAGE)
    return token


def _read(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_TOKEN_BYTES)


def development_issuer(settings: Settings) -> DevelopmentIssuer:
    """The issuer of the data directory. Raises SettingsError where the server takes no tokens of it."""
    if not settings.is_development:
        raise SettingsError("development: is off here, so the server takes no tokens of it; give --token-file.")
    return DevelopmentIssuer.open(settings.data_dir)


class Issued(msgspec.Struct, frozen=True):
    """A source of development tokens for one principal: each call makes a fresh one."""

    issuer: Any
    principal: Principal
    tenant: str = DEFAULT_TENANT
    groups: tuple[str, ...] = ()
    room: str | None = None
    role: str | None = None

    def __call__(self) -> str:
        """A token for TOKEN_TTL_S seconds from now."""
        return self.issuer.issue(
            self.principal, self.tenant, self.groups, TOKEN_TTL_S, now=time.time(), room=self.room, role=self.role
        )


def tokens_of(
    data_dir: Path | None,
    token: str | None,
    token_file: Path | None,
    principal: str,
    tenant: str = DEFAULT_TENANT,
    groups: Iterable[str] = (MEMBERS,),
) -> TokenSource:
    """The given token, else tokens of the data directory's development issuer."""
    given = given_token(token, token_file)
    if given is not None:
        return _constant(given)
    who = Principal.parse(principal, "--principal")
    return Issued(development_issuer(settings_of(data_dir)), who, tenant, tuple(groups) if who.kind == "human" else ())


def _constant(token: str) -> Callable[[], str]:
    return lambda: token
