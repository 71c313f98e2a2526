"""Shapes of JSON Schema (2020-12), as small functions: how schemas of bodies are written."""

from __future__ import annotations

from typing import Any

from coordinator.wire.strict_json import INTEGER_MAX

Schema = dict[str, Any]


def reference(name: str) -> Schema:
    """Return a reference to the schema called ``name``."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return ``schema``, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema) -> Schema:
    """Return a list of such ``items``."""
    return {"type": "array", "items": items}


def integer(minimum: int = 0, maximum: int = INTEGER_MAX, **more: Any) -> Schema:
    """Return a whole number of these bounds, both inclusive."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def choice(*values: str, **more: Any) -> Schema:
    """Return one of these words."""
    return {"type": "string", "enum": list(values), **more}


NOT_EMPTY: Schema = {"minProperties": 1}
"""Of a body of which one of two fields is wanted: generators of clients trip over ``anyOf`` with
nothing but ``required`` in it, so the fields' descriptions say which."""
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
EXPECTED_VERSION = integer(-1, description="-1 accepts any version")
CZXID = integer()
