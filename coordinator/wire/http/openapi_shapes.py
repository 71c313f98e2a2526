"""How the schemas of bodies are written down: small functions that return JSON Schema (2020-12)."""

from __future__ import annotations

from typing import Any

from coordinator.model.fields import TEXT_CHARACTERS_MAX, VERSION_MAX
from coordinator.wire.messages.if_held import IF_HELD_MAX
from coordinator.wire.strict_json import INTEGER_MAX

Schema = dict[str, Any]


def reference(name: str) -> Schema:
    """Return a reference to the schema called ``name``."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return ``schema``, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def integer(minimum: int = 0, maximum: int = INTEGER_MAX, **more: Any) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def choice(*values: str, **more: Any) -> Schema:
    return {"type": "string", "enum": list(values), **more}


def response(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return an object that may grow."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties}


def body(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return an object that is refused if it has any other field; null is as good as absent."""
    given = {name: maybe(schema) for name, schema in (optional or {}).items()}
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **given},
        "additionalProperties": False,
    }


NOT_EMPTY: Schema = {"minProperties": 1}
"""Of a body of which one of two fields is wanted: generators of clients trip over ``anyOf`` with
nothing but ``required`` in it, so the fields' descriptions say which."""
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
SHORT_TEXT: Schema = {"type": "string", "maxLength": TEXT_CHARACTERS_MAX}
EXPECTED_VERSION = integer(-1, VERSION_MAX, description="-1 accepts any version")
CZXID = integer()
BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
IF_HELD = {
    "if_held": {
        "anyOf": [
            reference("IfHeld"),
            {"type": "array", "items": reference("IfHeld"), "maxItems": IF_HELD_MAX},
        ],
        "description": "only while these grants still hold; refused with LockLost otherwise",
    }
}


def line(kind: str, required: dict[str, Schema]) -> Schema:
    """Return one line of a stream."""
    return response({"type": {"const": kind}, **required})
