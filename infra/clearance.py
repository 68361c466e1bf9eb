"""The clearance policy of the settings: labels by groups and claims, or a callable that is asked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from ..commands.conversations.ports import Viewer
from .python_callable import named_callable
from .questions import ANSWER_S, Questions
from .settings import SettingsError
from .settings_clearance import GROUPS, ClearanceSettings

VERSION_DIGITS = 16

Cleared = Callable[..., Any]
"""What a callable is: `cleared(viewer, classes)`."""


class ClearancePolicy:
    """See Clearance. One per process and loop; made before the first request.

    A callable gets a viewer as a mapping with tenant, actor, onBehalfOf (None where nobody is), groups and claims, and
    a frozenset of exactly one class; a set of classes is cleared where each of them is. Sync ones run in threads, async
    ones in a loop of their own in such a thread, so that one that hangs holds up nobody but its own answer.
    """

    def __init__(self, settings: ClearanceSettings, folder: Path | None, answer_s: float = ANSWER_S) -> None:
        """folder: where modules are found beside installed ones. answer_s: seconds that a callable has.

        Raises SettingsError for a callable that there is not, or that does not take two arguments.
        """
        self.version = hashlib.sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()[:VERSION_DIGITS]
        self._settings = settings
        self._callables = {
            rules.python: _callable(f"{key}.python", rules.python, folder)
            for key, rules in settings.named().items()
            if rules.python is not None
        }
        self._questions = Questions("clearance", answer_s)

    def labels(self, viewer: Viewer) -> frozenset[str] | None:
        """See Clearance."""
        rules = self._settings.of(_tenant(viewer))
        return None if rules.python is not None else rules.granted(viewer.claims)

    async def resolve(self, viewer: Viewer, class_sets: Iterable[Collection[str]]) -> Mapping[frozenset[str], bool]:
        """See Clearance."""
        asked = {frozenset(each) for each in class_sets} - {frozenset()}
        if not asked:
            return {}
        labels = self.labels(viewer)
        if labels is None:
            labels = await self._cleared(viewer, frozenset[str]().union(*asked))
        return {each: each <= labels for each in asked}

    async def _cleared(self, viewer: Viewer, classes: frozenset[str]) -> frozenset[str]:
        """Those of the classes that the callable clears, each asked for once."""
        function = self._callables[self._settings.of(_tenant(viewer)).python or ""]
        each = sorted(classes)
        answers = await asyncio.gather(*(self._ask(function, viewer, name) for name in each))
        return frozenset(name for name, answer in zip(each, answers, strict=True) if answer is True)

    async def _ask(self, function: Cleared, viewer: Viewer, name: str) -> bool:
        return await self._questions.ask(function, lambda: (_shown(viewer), frozenset({name}))) is True


def _callable(key: str, text: str, folder: Path | None) -> Cleared:
    found = named_callable(key, text, folder)
    try:
        signature(found).bind({}, frozenset())
    except (TypeError, ValueError):
        raise SettingsError(f"{key}: {text} must take two arguments, the viewer and the classes.") from None
    return found


def _tenant(viewer: Viewer) -> str:
    return "" if viewer.identity.tenant is UNSET else viewer.identity.tenant


def _shown(viewer: Viewer) -> dict[str, Any]:
    """What a callable gets; made anew for each call, so that what it does to it stays without effect."""
    identity = viewer.identity
    return {
        "tenant": None if identity.tenant is UNSET else identity.tenant,
        "actor": identity.actor,
        "onBehalfOf": None if identity.on_behalf_of is UNSET else identity.on_behalf_of,
        "groups": tuple(viewer.claims.get(GROUPS, ())),
        "claims": {name: tuple(values) for name, values in viewer.claims.items()},
    }
