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
from coordinator.wire.body_fields import bare
from coordinator.wire.http.openapi_shapes import Schema, array, choice, integer, maybe, reference

_BOUNDS = {
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
}


class Schemas:
    """The schemas of some kinds of values; those with a name are referred to by it.

    A tagged kind is an item of a union, or ``alone``: then it need not say which kind it is.
    ``when``: whether what changes the names of fields is so (``or_called``); None: it may be."""

    def __init__(
        self,
        names: Mapping[str, Any],
        alone: Mapping[str, Any] | None = None,
        *,
        when: bool | None = None,
    ) -> None:
        self._name_of = {_key(inspect.type_info(kind)): name for name, kind in names.items()}
        self._alone = {_key(inspect.type_info(kind)): name for name, kind in (alone or {}).items()}
        self._when = when

    def of(
        self,
        kind: Any,
        *,
        given: Collection[str] = (),
        beside: Mapping[str, Schema] | None = None,
        is_alone: bool = False,
    ) -> Schema:
        """Return the schema of ``kind``, without the fields ``given`` elsewhere (see ``codec``).

        ``beside`` are the schemas of fields that belong to another value."""
        info: Any = inspect.type_info(kind)
        if isinstance(info, inspect.UnionType):
            return {"oneOf": [self._referred(each) for each in info.types]}
        is_strict = getattr(info, "forbid_unknown_fields", False)
        required: list[str] = []
        properties: dict[str, Schema] = {}
        if not given and getattr(info, "tag_field", None) is not None:
            constant = {"const": info.tag}
            properties[info.tag_field] = maybe(constant) if is_alone else constant
            required += [] if is_alone else [info.tag_field]
        for field in info.fields:
            if field.name in given or bare(field.type)[1].get("is_internal"):
                continue
            needed, schemas = self._field(field, is_strict)
            properties |= schemas
            required += needed
        properties |= {name: maybe(schema) for name, schema in (beside or {}).items()}
        schema: Schema = {"type": "object", "required": required, "properties": properties}
        return {**schema, "additionalProperties": False} if is_strict else schema

    def of_fields(self, kind: Any, *names: str) -> dict[str, Schema]:
        """Return the schemas of some fields of ``kind``, as parameters of a query."""
        info: Any = inspect.type_info(kind)
        fields = {each.encode_name: each for each in info.fields}
        return {name: _not_null(self._value(fields[name].type)) for name in names}

    def _field(
        self, field: inspect.Field, is_strict: bool
    ) -> tuple[Collection[str], dict[str, Schema]]:
        """Return which fields of a body there must be for ``field``, and the schema of each."""
        kind, extra = bare(field.type)
        name, schema = field.encode_name, self._value(field.type)
        if self._when:
            if extra.get("is_unsaid"):
                return (), {}
            name = extra.get("or_called", name)
        types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
        if any(isinstance(each, inspect.BytesType) for each in types):
            pair = _bytes(name, schema["description"])
            return (), {each: maybe(pair[each]) if is_strict else pair[each] for each in pair}
        is_nullable = any(isinstance(each, inspect.NoneType) for each in types)
        if is_strict:
            is_given = field.required or is_nullable
            return (name,) if field.required else (), {name: schema if is_given else maybe(schema)}
        if field.default == "" and "enum" in schema:
            schema = {**schema, "enum": ["", *schema["enum"]]}
        schema.pop("maxLength", None)  # of what is asked, not of what a program wrote by hand
        if "or_called" in extra and self._when is None:
            return (), {name: schema, extra["or_called"]: schema}
        if extra.get("is_left_out"):
            is_null_said = not is_nullable or extra.get("is_null_said")
            return (), {name: schema if is_null_said else _not_null(schema)}
        schemas = {name: schema}
        if self._when and "also_called" in extra:
            schemas[extra["also_called"]] = schema
        return tuple(schemas), schemas

    def _referred(self, info: Any, *, is_alone: bool = False) -> Schema:
        """Return the schema of an object that is a part of another value."""
        is_alone = is_alone and getattr(info, "tag_field", None) is not None
        name = (self._alone if is_alone else self._name_of).get(_key(info))
        return reference(name) if name is not None else self.of(info.cls, is_alone=is_alone)

    def _value(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.Metadata(inner, annotations, extra):
                schema, words = self._value(inner), (extra or {}).get("one_of")
                return {**_chosen(schema, words), **(annotations or {})}
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
                return self._union(kind, [e for e in types if not isinstance(e, inspect.NoneType)])
            case inspect.CustomType(cls) if cls is CoordinatorError:
                return reference("Problem")
        return self._referred(kind, is_alone=True)

    def _union(self, kind: inspect.UnionType, types: list[inspect.Type]) -> Schema:
        if len(types) == 1:
            schema = self._value(types[0])
            return maybe(schema) if len(kind.types) > 1 else schema
        name = self._name_of.get(_key(kind))
        if name is not None:
            return reference(name)
        return {"anyOf": [self._value(each) for each in types]}


def _key(info: Any) -> Any:
    """Return what a kind, or a union of kinds, is found by."""
    if isinstance(info, inspect.UnionType):
        return frozenset([getattr(each, "cls", type(each)) for each in info.types])
    return info.cls


def _not_null(schema: Schema) -> Schema:
    """Return ``schema`` without the null that stands for absence."""
    return {**schema.pop("anyOf")[0], **schema} if "anyOf" in schema else schema


def _chosen(schema: Schema, words: Any) -> Schema:
    """Return the schema of a text with its words, if they are restricted; null stays."""
    if words is None:
        return schema
    return maybe(choice(*words)) if "anyOf" in schema else choice(*words)


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
