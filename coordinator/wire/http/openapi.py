"""The OpenAPI 3.1 document, made of what ``openapi_operations`` says of each route."""

from __future__ import annotations

from typing import Any

from coordinator.wire import messages
from coordinator.wire.http.openapi_operations import OPERATIONS, TAGS, TREE, Described
from coordinator.wire.http.openapi_pages import PAGE_TYPES
from coordinator.wire.http.openapi_parameters import (
    COMMON_HEADERS,
    IF_MATCH,
    IF_NONE_MATCH,
    PATH_PARAMETERS,
    READ_QUERY,
    WRITE_HEADERS,
    WRITE_QUERY,
    described,
)
from coordinator.wire.http.openapi_schemas import SCHEMAS, SECURITY
from coordinator.wire.http.openapi_shapes import (
    TEXT,
    Schema,
    reference,
)

JSON = "application/json"
MSGPACK = "application/msgpack"

_ALWAYS = (400, 401, 403, 408, 500, 503, 504)
_REASONS = {
    304: "not modified: the data is that of an ETag in If-None-Match",
    400: "the request is not what the route needs; the detail says what was expected and found",
    401: "a credential is needed, or the one that was shown is not accepted",
    403: "not allowed: the detail says which right is missing",
    404: "no such znode, or file",
    408: "the body did not come in time",
    409: "it conflicts with existing data, a limit, or the holder",
    410: "the session or the grant has ended, or the zxid is no longer kept",
    412: "another version than the expected one",
    413: "the data or the body is too large",
    429: "too much is waiting; try again",
    500: "an unexpected failure; the outcome is unknown",
    503: "no leader, or stopping; nothing happened, try again",
    504: "the outcome is unknown",
}


def openapi_document(version: str) -> dict[str, Any]:
    """Return the whole document, for the product's ``version``."""
    paths: dict[str, dict[str, Any]] = {}
    for operation_id, route in OPERATIONS.items():
        path = paths.setdefault(route.template, {})
        path[route.method.lower()] = _operation(operation_id, route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "coordinator",
            "version": version,
            "description": "Znodes, sessions, watches, fair locks and elections over Raft. "
            "docs/http-api.md is the prose to this.",
            "contact": {"name": "the maintainers of coordinator"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "the member that this document came from"}],
        "security": [{}, {"token": []}, {"certificate": []}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": SECURITY},
    }


def _operation(operation_id: str, route: Described) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "description": f"{route.summary} More in docs/http-api.md.",
        "parameters": _parameters(route),
        "responses": _responses(operation_id, route),
    }
    if route.takes:
        schemas = [reference(name) for name in route.takes]
        content: dict[str, Any] = {JSON: {"schema": _any_of(schemas)}}
        content[MSGPACK] = {"schema": {}}
        if route.is_raw:
            content[messages.RAW_TYPE] = {"schema": {}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Described) -> list[dict[str, Any]]:
    names = [piece.partition("}")[0] for piece in route.template.split("{")[1:]]
    is_conditional = route.method in ("PUT", "DELETE") and route.template == TREE
    query = {
        **(route.query or {}),
        **(READ_QUERY if route.is_read else {}),
        **(WRITE_QUERY if route.is_write else {}),
    }
    headers = {
        **COMMON_HEADERS,
        **(WRITE_HEADERS if route.is_write else {}),
        **(IF_MATCH if is_conditional else {}),
        **(IF_NONE_MATCH if 304 in route.also else {}),
    }
    return [
        *described("path", {name: PATH_PARAMETERS[name] for name in names}),
        *described("query", query),
        *described("header", headers),
    ]


def _responses(operation_id: str, route: Described) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    success = {"description": "done", "content": _content(operation_id, route)}
    for status in (route.status, *(each for each in route.also if each < 300)):
        responses[str(status)] = success
    if 304 in route.also:
        responses["304"] = {"description": _REASONS[304]}
    errors = {*route.errors, *_ALWAYS, 429}
    if route.is_write:
        errors.add(410)  # a grant that it depends on has ended
    for status in sorted(errors):
        responses[str(status)] = {
            "description": _REASONS[status],
            "content": {messages.PROBLEM_TYPE: {"schema": reference("Problem")}},
        }
    if 503 in route.also:
        responses["503"] = {
            "description": _REASONS[503],
            "content": _content(operation_id, route),
        }
    if route.method == "HEAD":
        responses = {
            status: {"description": each["description"]} for status, each in responses.items()
        }
    return responses


def _content(operation_id: str, route: Described) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.gives is not None:
        schemas = [reference(route.gives)]
        if route.gives == "Znode":
            schemas += [reference("Children"), reference("Subtree")]
        content[JSON] = {"schema": _any_of(schemas)}
        content[MSGPACK] = {"schema": {}}
    if route.gives == "Znode":
        content[messages.RAW_TYPE] = {"schema": {}}
    if route.streams is not None:
        for stream_type in route.stream_types:
            content[stream_type] = {"schema": reference(route.streams)}
    if route.is_page:
        content |= {each: {"schema": {}} for each in PAGE_TYPES}
    if operation_id == "metrics":
        content["text/plain"] = {"schema": TEXT}
    if operation_id == "openapi":
        content[JSON] = {"schema": {"type": "object"}}
    return content


def _any_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
