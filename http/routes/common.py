"""What the route modules share: dependencies, answers, headers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import Dependency, Parameter

from ...commands.mailbox import Answer
from ...domain.ids import MAX_KEY_CHARS, idempotency_key
from ...domain.principals import Caller
from ..services import Services

TheServices = Annotated[Services, Dependency(skip_validation=True)]
TheCaller = Annotated[Caller, Dependency(skip_validation=True)]
KeyHeader = Annotated[
    str | None,
    Parameter(
        header="Idempotency-Key",
        required=False,
        description=f"1 to {MAX_KEY_CHARS} visible ASCII characters; a retry with the same key has its effect once.",
    ),
]
MinSeq = Annotated[int | None, Parameter(query="minSeq", ge=0, le=2**53, required=False)]


class CommandAnswer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What every command answers: the last seq, the id of what was made or of the last event, the chain's hash there."""

    seq: int
    chain: str
    id: str | None = None


def caller_of(request: Request[Any, Any, Any]) -> Caller:
    """The verified caller that the gate left in the scope."""
    return request.scope["state"]["caller"]  # pyright: ignore[reportGeneralTypeIssues]


def key_of(header: str | None) -> str | None:
    """The idempotency key, checked. Raises Malformed."""
    return None if header is None else idempotency_key(header)


def answered(answer: Answer) -> Response[Any]:
    """A command's answer with its status; a replay says so."""
    headers = {"cache-control": "no-store"}
    if answer.is_replay:
        headers["idempotency-replayed"] = "true"
    return Response(answer.body, status_code=answer.status, headers=headers)
