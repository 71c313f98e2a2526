"""JSON Schema (2020-12) of the values of the model, made from their definitions.

Of a request an unknown field is refused, and null is as good as absent; an answer has all its
fields, but for those that are left out, and may grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import inspect

from coordinator.errors import CoordinatorError
from coordinator.model.fields import INTEGER_MAX, INTEGER_MIN
from coordinator.wire.codec import bare
from coordinator.wire.http.openapi_shapes import Schema, array, choice, integer, maybe, reference

_BOUNDS = {
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
}


class Schemas:
    """The schemas of some kinds of values; those with a name are referred to by it."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._name_of = {kind: name for name, kind in names.items()}

    def of(
        self, kind: Any, *, given: Collection[str] = (), beside: Mapping[str, Schema] | None = None
    ) -> Schema:
        """Return the schema of ``kind``, without the fields ``given`` elsewhere (see ``codec``).

        ``beside`` are the schemas of fields that belong to somebody else."""
        info = inspect.type_info(kind)
        if isinstance(info, inspect.UnionType):
            return {"oneOf": [self._referred(each) for each in info.types]}
        return self._object(info, given, beside or {})

    def _object(self, info: Any, given: Collection[str], beside: Mapping[str, Schema]) -> Schema:
        is_strict = getattr(info, "forbid_unknown_fields", False)
        required: list[str] = []
        properties: dict[str, Schema] = {}
        if not given and getattr(info, "tag_field", None) is not None:
            required.append(info.tag_field)
            properties[info.tag_field] = {"const": info.tag}
        for field in info.fields:
            kind, extra = bare(field.type)
            if field.name in given or extra.get("is_internal"):
                continue
            name, schema = field.encode_name, self._value(field.type)
            types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
            if any(isinstance(each, inspect.BytesType) for each in types):
                pair = _bytes(name, schema["description"])
                properties |= {
                    each: maybe(pair[each]) if is_strict else pair[each] for each in pair
                }
                continue
            is_required = field.required if is_strict else not extra.get("is_left_out")
            is_nullable = any(isinstance(each, inspect.NoneType) for each in types)
            if is_required:
                required.append(name)
            elif is_nullable and not is_strict:  # null leaves it out
                schema = {**schema.pop("anyOf")[0], **schema}
            is_maybe = is_strict and not is_required and not is_nullable
            properties[name] = maybe(schema) if is_maybe else schema
        properties |= {name: maybe(schema) for name, schema in beside.items()}
        schema = {"type": "object", "required": required, "properties": properties}
        return {**schema, "additionalProperties": False} if is_strict else schema

    def _referred(self, info: Any) -> Schema:
        name = self._name_of.get(info.cls)
        return reference(name) if name is not None else self._object(info, (), {})

    def _value(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.Metadata(inner, said, extra):
                words = (extra or {}).get("one_of")
                schema = choice(*words) if words is not None else self._value(inner)
                return {**schema, **(said or {})}
            case inspect.IntType(ge=low, le=high):
                return integer(
                    INTEGER_MIN if low is None else low, INTEGER_MAX if high is None else high
                )
            case inspect.StrType() | inspect.BytesType():
                return _bounded({"type": "string"}, kind)
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.EnumType(cls):
                return choice(*[each.value for each in cls])
            case inspect.VarTupleType(item_type=item):
                return _bounded(array(self._value(item)), kind)
            case inspect.DictType(value_type=item):
                schema = {"type": "object", "additionalProperties": self._value(item)}
                return _bounded(schema, kind)
            case inspect.UnionType(types):
                several = [each for each in types if not isinstance(each, inspect.NoneType)]
                if len(several) > 1:
                    return {"oneOf": [self._referred(each) for each in several]}
                schema = self._value(several[0])
                return schema if len(types) == 1 else maybe(schema)
            case inspect.CustomType(cls) if cls is CoordinatorError:
                return reference("Problem")
        return self._referred(kind)


def _bounded(schema: Schema, kind: Any) -> Schema:
    for name, words in _BOUNDS.items():
        if getattr(kind, name) is not None:
            schema[words[schema["type"]]] = getattr(kind, name)
    return schema


def _bytes(name: str, description: str) -> dict[str, Schema]:
    """Return both fields that carry bytes."""
    return {
        name: {"type": "string", "description": f"{description} as text; in msgpack as bytes"},
        f"{name}_base64": {
            "type": "string",
            "contentEncoding": "base64",
            "description": f"{description}, if it is not clean UTF-8 text",
        },
    }
