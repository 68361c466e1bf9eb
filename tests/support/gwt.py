"""Given events, when a command, then events: the deciders of the domain without anything around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import msgspec
import pytest
from minutebook.domain.errors import MinutebookError
from minutebook.domain.events import Recorded
from minutebook.domain.principals import SERVER

Decide = Callable[[Any, int], Any]
"""A decision with its command and caller filled in; takes the state and the version of the stream."""


def recorded(items: Sequence[Any], after: int = 0) -> list[Recorded[Any]]:
    """Events as the log would hand them back. An item is a bare event, a NewEvent, or a Recorded, which stays."""

    def one(seq: int, item: Any) -> Recorded[Any]:
        if isinstance(item, Recorded):
            return cast("Recorded[Any]", item)
        actor, run_id, key = (getattr(item, name, None) for name in ("actor", "run_id", "origin_key"))
        if not hasattr(item, "origin_client"):
            return Recorded(seq, actor or SERVER, None, key, item)
        return Recorded(seq, actor or SERVER, run_id, key, item.event, item.classes)

    return [one(seq, item) for seq, item in enumerate(items, after + 1)]


class Given(msgspec.Struct, frozen=True):
    """The state that `events` leave behind. `evolve` and `initial` are the aggregate's."""

    evolve: Callable[[Any, Any], Any]
    initial: Any
    events: tuple[Any, ...]

    @property
    def state(self) -> Any:
        """The folded state."""
        return reduce(self.evolve, recorded(self.events), self.initial)

    def when(self, decide: Decide) -> Then:
        """The command, run when one of the `then` asks."""
        return Then(lambda: decide(self.state, len(self.events)))


class Then(msgspec.Struct, frozen=True):
    """What came of a command."""

    decided: Callable[[], Any]

    def then(self, *events: Any) -> Any:
        """Exactly these events, in this order; answers the decision."""
        decision = self.decided()
        assert [new.event for new in decision.events] == list(events)
        return decision

    def then_nothing(self) -> Any:
        """No event and no refusal."""
        return self.then()

    def then_refused(self, refusal: type[MinutebookError], path: str | None = None) -> MinutebookError:
        """Exactly this refusal, with this JSON path where one is given; answers it."""
        with pytest.raises(MinutebookError) as caught:
            self.decided()
        error = caught.value
        assert type(error) is refusal
        assert path is None or [each["path"] for each in error.attributes["errors"]] == [path]
        return error
