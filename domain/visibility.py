"""What a viewer may see of an entry: the one such function in the product, used by every read path."""

from __future__ import annotations

from collections.abc import Collection


def cleared(classes: Collection[str], labels: frozenset[str]) -> bool:
    """Whether a viewer with `labels` may see an entry of `classes`: every class must be among the labels."""
    return all(name in labels for name in classes)
