"""The OpenAPI document: paths and parameters from the routes by Litestar, schemas from the types by msgspec."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, Schema, SecurityScheme
from litestar.plugins import OpenAPISchemaPlugin
from litestar.types import ControllerRouterHandler
from litestar.typing import FieldDefinition

from .. import __version__
from ..domain.envelope import Envelope, Placeholder
from .conversation_entries import Entry, RestrictedEntry
from .problems import PROBLEM_TYPE, STATUS, TITLES, Problem
from .session import COOKIE

REF = "#/components/schemas/{name}"

OPEN_TAG = "operations"
"""Routes with this tag need no token; they answer no problem documents of the API."""

PROVEN_TAG = "inbound"
"""Routes with this tag need no token either: their body is a platform's, and proves itself."""

PLACE = "struct:"
"""Before the name of a struct, in the title of what stands for its schema."""

ENDLESS = ("/stream", "/conversations/{conversation_id}/events")
"""What the paths of streams end with."""

_READ = (400, 401, 403, 404, 406, 422, 500, 503, 504)
_FOLLOW = (*_READ, 429)
_WRITE = (*_FOLLOW, 409, 410, 413, 415)
_RETRIED = {429, 503}

Document = dict[str, Any]


class _Structs(OpenAPISchemaPlugin):
    """Collects the structs that routes answer with; msgspec describes them all at once, with their bounds."""

    def __init__(self) -> None:
        self.seen: set[type[msgspec.Struct]] = {Envelope, Placeholder, Entry, RestrictedEntry, Problem}

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return not field_definition.is_union and field_definition.is_subclass_of(msgspec.Struct)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Any:  # noqa: ARG002
        self.seen.add(field_definition.annotation)
        # Litestar takes only references that its own registry made; `_with_references` puts them in at the end.
        return Schema(title=PLACE + field_definition.annotation.__name__)


def describe(handlers: Sequence[ControllerRouterHandler], dependencies: Iterable[str]) -> bytes:
    """The OpenAPI 3.1 document of these routes, as JSON. dependencies: names of parameters that no client sends."""
    structs = _Structs()
    app = Litestar(
        handlers,
        dependencies={name: Provide(lambda: None, sync_to_thread=False) for name in dependencies},
        plugins=[structs],
        openapi_config=OpenAPIConfig(
            title="Minutebook",
            version=__version__,
            description="Rooms that people and agent runs share, on an append-only log.",
            components=Components(
                security_schemes={
                    "token": SecurityScheme("http", scheme="bearer", bearer_format="JWT"),
                    "session": SecurityScheme("apiKey", name=COOKIE, security_scheme_in="cookie"),
                }
            ),
            use_handler_docstrings=True,
            operation_id_creator=_operation_id,
            security=[{"token": []}, {"session": []}],
        ),
    )
    document: Document = _with_references(app.openapi_schema.to_schema())
    bodies = _bodies(app)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            statuses = _WRITE if method != "get" else _FOLLOW if path.endswith(ENDLESS) else _READ
            _complete(statuses, operation, bodies.get((path, method)))
    _, schemas = msgspec.json.schema_components(
        [*sorted(structs.seen, key=lambda one: one.__name__), *bodies.values()], ref_template=REF
    )
    schemas["Envelope"]["properties"]["payload"] = {"type": "object", "description": "By `type`; see the reference."}
    components = document["components"]
    components["schemas"] = {**components.get("schemas", {}), **schemas}
    components["responses"] = {_name(status): _problem(status) for status in sorted(_WRITE)}
    return msgspec.json.encode(document)


def _operation_id(handler: HTTPRouteHandler, _method: Any, _path: Any) -> str:
    first, *rest = handler.handler_name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _with_references(value: Any) -> Any:
    match value:
        case {"title": str(title)} if title.startswith(PLACE):
            return {"$ref": REF.format(name=title.removeprefix(PLACE))}
        case dict():
            return {name: _with_references(inner) for name, inner in cast("Document", value).items()}
        case list():
            return [_with_references(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def _bodies(app: Litestar) -> dict[tuple[str, str], type[msgspec.Struct]]:
    """What handlers declare in `opt`, by path and method."""
    found: dict[tuple[str, str], type[msgspec.Struct]] = {}
    for route in app.routes:
        for handler in cast("list[HTTPRouteHandler]", getattr(route, "route_handlers", [])):
            body = handler.opt.get("body")
            if body is not None:
                found |= {(route.path_format, method.lower()): body for method in handler.http_methods}
    return found


def _complete(statuses: Sequence[int], operation: Document, body: type[msgspec.Struct] | None) -> None:
    """The body, and a problem for every status that the operation may answer, in place of the framework's own."""
    operation["summary"] = operation.get("description", operation["operationId"]).partition("\n")[0]
    operation["responses"].pop("400", None)
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
    if OPEN_TAG in operation.get("tags", ()):
        operation["security"] = []
        return
    if PROVEN_TAG in operation.get("tags", ()):
        operation["security"] = []
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content, "description": "As the platform sends it."}
    for status in statuses:
        operation["responses"][str(status)] = {"$ref": f"#/components/responses/{_name(status)}"}
    if body is not None:
        is_needed = any(field.required for field in msgspec.structs.fields(body))
        schema = {"$ref": REF.format(name=body.__name__)}
        operation["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": schema}}}


def _without_null(schema: Document) -> Document:
    """A parameter that may be left out is not null when it is there."""
    kinds = [kind for kind in schema.get("oneOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**{name: value for name, value in schema.items() if name != "oneOf"}, **kinds[0]}


def _name(status: int) -> str:
    return f"Problem{status}"


def _problem(status: int) -> Document:
    codes = [code for code, its in STATUS.items() if its == status]
    words = "; ".join(f"`{code}`: {TITLES[code]}" for code in codes)
    answer: Document = {
        "description": words,
        "content": {PROBLEM_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}},
    }
    if status in _RETRIED:
        answer["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds"}}
    return answer
