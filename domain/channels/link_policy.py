"""Which channels may be linked with each other, and to which an answer may go from where (delivery.md, Link policy)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace


class LinkPolicy(Struct, frozen=True):
    """pairs: of source tier and target tier, for `pairs` alone. tiers: by channel; a channel without one has the tier
    of no other, not even of another without one."""

    kind: Literal["allow_all", "same_tier_only", "pairs", "deny_all"]
    tiers: Mapping[str, str] = {}
    pairs: frozenset[tuple[str, str]] = frozenset()


def default_policy(tiers: Mapping[str, str]) -> LinkPolicy:
    """Of settings that name none: as soon as any channel has a tier, only those of the same one."""
    return LinkPolicy("same_tier_only" if tiers else "allow_all", tiers)


def with_tier(policy: LinkPolicy, channel: str, tier: str | None) -> LinkPolicy:
    """The policy with one more channel that has a tier; as it is for None."""
    return policy if tier is None else replace(policy, tiers={**policy.tiers, channel: tier})


def permits(policy: LinkPolicy, source: str, target: str) -> bool:
    """Whether what belongs to one channel may go to another. A channel may always answer on itself."""
    if source == target:
        return True
    from_tier, to_tier = policy.tiers.get(source), policy.tiers.get(target)
    match policy.kind:
        case "allow_all":
            return True
        case "deny_all":
            return False
        case "same_tier_only":
            return from_tier is not None and from_tier == to_tier
        case "pairs":
            return from_tier is not None and to_tier is not None and (from_tier, to_tier) in policy.pairs


def may_link(policy: LinkPolicy, one: str, other: str) -> bool:
    """Whether two ends may be linked: words would flow both ways. Under deny_all not even two ends of one channel are,
    though it answers on itself."""
    return policy.kind != "deny_all" and permits(policy, one, other) and permits(policy, other, one)


def reachable(policy: LinkPolicy, source: str, targets: Iterable[str]) -> list[str]:
    """Those of the targets that an answer from `source` may go to, in their order."""
    return [target for target in targets if permits(policy, source, target)]
