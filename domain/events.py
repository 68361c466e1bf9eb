"""What an event is, at rest and in memory, and the closed registries that turn one into the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from .errors import Damaged
from .principals import Principal

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)

Origin = Literal["harness", "client", "broker"]
"""Where an event came from: an agent's harness through its bridge, a client's command, or the server itself."""


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of every declared event. `type` and `version` are its name at rest and never change once stored.

    Subclasses fix their discriminators (`kind`, `phase`, `change`) as literal fields with a default.
    """

    type: ClassVar[str]
    version: ClassVar[int] = 1

    def payload(self) -> Any:
        """The JSON-ready payload, before redaction."""
        return msgspec.to_builtins(self, str_keys=True)


class Opaque(msgspec.Struct, frozen=True):
    """A stored event that this version has no declaration for: kept, shown as it is, folded by nobody (fault B79)."""

    type: str
    version: int


class Unstorable(msgspec.Struct, frozen=True):
    """A bridge's item whose payload could not be stored; its slot and seq stay (rooms.md).

    body is `{"oversize": true, "bytes", "type"}` or `{"refused": true, "type", "reason"}`.
    """

    type: str
    body: dict[str, Any]
    version: ClassVar[int] = 1

    def payload(self) -> dict[str, Any]:
        """The placeholder as it is stored."""
        return self.body


class Recorded(msgspec.Struct, Generic[E_co], frozen=True):
    """An event with what the log stamped on it that a fold may depend on. Time is not among it, on purpose.

    origin_key: the writer's own number for a bridge's item, `events:<n>` or `status:<n>`.
    classes: the visibility classes, for what is derived from the event (law 14).
    """

    seq: int
    actor: Principal
    run_id: str | None
    origin_key: str | None
    event: E_co
    classes: tuple[str, ...] = ()


class _Peek(msgspec.Struct, frozen=True):
    kind: Any = None
    phase: Any = None
    change: Any = None
    refused: Any = None
    oversize: Any = None
    erased: Any = None


_Key = tuple[str, int, str | None, str | None]


class Registry(Generic[E]):
    """The events of one kind of stream, closed at construction.

    An unknown name or version decodes to Opaque; a known one whose body does not fit raises Damaged. A name that is
    declared twice raises ValueError at import. `declared` has the types in their order.
    """

    def __init__(self, declared: Iterable[type[Event]]) -> None:
        self._peek = msgspec.json.Decoder(_Peek)
        self._decoders: dict[_Key, msgspec.json.Decoder[E]] = {}
        self.declared = tuple(declared)
        for event in self.declared:
            for key in _keys(event):
                if key in self._decoders:
                    raise ValueError(f"two events are called {key} at rest")
                self._decoders[key] = msgspec.json.Decoder(event)  # pyright: ignore[reportArgumentType]

    @property
    def keys(self) -> frozenset[_Key]:
        """Every `(type, version, kind or change, phase)` that decodes."""
        return frozenset(self._decoders)

    def decode(self, type_: str, version: int, payload: bytes | str) -> E | Opaque | Unstorable:
        """The event of a stored row. Raises Damaged where its body is not what its name promises."""
        try:
            peek = self._peek.decode(payload)
            if peek.refused is True or peek.oversize is True:
                return Unstorable(type_, msgspec.json.decode(payload))
            if peek.erased is True:
                return Opaque(type_, version)
            discriminator = peek.kind if peek.kind is not None else peek.change
            for key in (
                (type_, version, discriminator, peek.phase),
                (type_, version, discriminator, None),
                (type_, version, None, None),
            ):
                decoder = self._decoders.get(key)
                if decoder is not None:
                    return decoder.decode(payload)
        except (msgspec.MsgspecError, TypeError) as error:
            raise Damaged(f"A stored event of type {type_} version {version} cannot be read.") from error
        return Opaque(type_, version)


def _keys(event: type[Event]) -> list[_Key]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(event)}

    def fixed(name: str) -> list[str | None]:
        if name not in fields or not isinstance(fields[name].default, str):
            return [None]
        described = msgspec.inspect.type_info(fields[name].type)
        return list(described.values) if isinstance(described, msgspec.inspect.LiteralType) else [None]  # pyright: ignore[reportReturnType]

    first = fixed("kind") if fixed("kind") != [None] else fixed("change")
    return [(event.type, event.version, kind, phase) for kind in first for phase in fixed("phase")]
