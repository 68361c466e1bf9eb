"""The settings of the clearance policy: which labels a caller has, or who is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from .settings_section import Section

NonEmpty = Annotated[str, Meta(min_length=1)]

GROUPS = "groups"
"""The claim of a viewer that has the groups, whatever the issuer calls it."""


class ClearanceRules(Section, frozen=True):
    """`[clearance.tenants.<tenant>]`: what counts for the callers of one tenant, and nothing else does."""

    groups: Annotated[dict[str, tuple[str, ...]], Meta(description="Group to labels.")] = {}
    claims: Annotated[dict[str, dict[str, tuple[str, ...]]], Meta(description="Claim, its value, to labels.")] = {}
    python: Annotated[
        NonEmpty | None,
        Meta(description="Instead of both: a callable `module:function` that is asked for each class."),
    ] = None

    def granted(self, claims: Mapping[str, Sequence[str]]) -> frozenset[str]:
        """The labels that groups and claims grant; none where a callable is asked."""
        labels = {label for group in claims.get(GROUPS, ()) for label in self.groups.get(group, ())}
        for name, by_value in self.claims.items():
            labels.update(label for value in claims.get(name, ()) for label in by_value.get(value, ()))
        return frozenset(labels)


class ClearanceSettings(ClearanceRules, frozen=True):
    """`[clearance]`: what callers of tenants without a section of their own may see."""

    tenants: dict[str, ClearanceRules] = {}

    def of(self, tenant: str) -> ClearanceRules:
        """What counts for that tenant."""
        return self.tenants.get(tenant, self)

    def named(self) -> dict[str, ClearanceRules]:
        """All that there is, each by its key."""
        return {"clearance": self, **{f"clearance.tenants.{name}": each for name, each in self.tenants.items()}}
