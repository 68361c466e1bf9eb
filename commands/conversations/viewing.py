"""Who looks at a conversation."""

from __future__ import annotations

from ...domain.conversations.identity import identity_of
from ...domain.principals import Caller
from .ports import Viewer


def viewer_of(caller: Caller) -> Viewer:
    """The viewer behind a request, with the claims of their token.

    That of an envelope is Viewer(its asker, its claims), where they are not too old.
    """
    return Viewer(identity_of(caller), caller.claims)
