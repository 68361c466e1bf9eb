"""Which methods a path takes: for 405 with `Allow`, for OPTIONS and HEAD."""

from __future__ import annotations

import re
from collections.abc import Iterable

from litestar.routes import BaseRoute, HTTPRoute

_SLASHES = re.compile("/+")


class MethodTable:
    """The routes of the application by the shape of their path."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        shapes: dict[str, set[str]] = {}
        for route in routes:
            if isinstance(route, HTTPRoute):
                shapes.setdefault(_shape(route), set()).update(route.methods)
        self._rows = [(re.compile(shape, re.DOTALL), _with_head(methods)) for shape, methods in shapes.items()]

    def of(self, path: str) -> tuple[str, ...]:
        """The methods in alphabetical order, none where there is no such path."""
        folded = _SLASHES.sub("/", path).rstrip("/") or "/"
        for shape, methods in self._rows:
            if shape.fullmatch(folded) is not None:
                return methods
        return ()


def _shape(route: HTTPRoute) -> str:
    parts = [
        re.escape(part) if isinstance(part, str) else (".+" if part.type.__name__ == "Path" else "[^/]+")
        for part in route.path_components
    ]
    return "/" + "/".join(parts)


def _with_head(methods: set[str]) -> tuple[str, ...]:
    return tuple(sorted({*methods, "OPTIONS"} | ({"HEAD"} if "GET" in methods else set())))
