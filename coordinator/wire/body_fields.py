"""The fields of a body: how each is called, read and written, as its definition says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import NODEFAULT, inspect

from coordinator.wire.encoding import Encoding, bytes_fields, read_base64
from coordinator.wire.forms import UNBOUNDED, Form, WrongBody, refuse
from coordinator.wire.strict_json import found


def bare(kind: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """Return a type without what is said of it, and what is."""
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        extra = {**(kind.extra or {}), **extra}
        kind = kind.type
    return kind, extra


def nothing_said(body: Mapping[str, Any], name: str) -> str:
    """Say in which way ``body`` says nothing of a field."""
    return "null" if name in body else "no such field"


@dataclass(frozen=True, slots=True)
class BodyField:
    """One field: ``name`` in the model, ``called`` so in a body."""

    name: str
    called: str
    form: Form
    is_required: bool
    is_nullable: bool
    is_left_out: bool
    default: Any
    bytes_max: int | None
    """None: it is not made of bytes."""
    when: str
    """The field that changes what is said of this one while it is true; "": there is none."""
    other: str | None
    """What it is called then, instead; ``also``: beside."""
    also: str | None
    is_unsaid: bool
    """Whether it is left out then."""

    @classmethod
    def of(
        cls, field: inspect.Field, form_of: Callable[[inspect.Type], Form], *, is_strict: bool
    ) -> BodyField | None:
        """Return how a body carries ``field``, with the form of its type; None when it does not."""
        kind, extra = bare(field.type)
        if extra.get("is_internal"):
            return None
        types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
        in_bytes = [each for each in types if isinstance(each, inspect.BytesType)]
        has_factory = field.default_factory is not NODEFAULT
        return cls(
            name=field.name,
            called=field.encode_name,
            form=form_of(field.type),
            is_required=field.required,
            is_nullable=any(isinstance(each, inspect.NoneType) for each in types),
            is_left_out=not field.required and (is_strict or bool(extra.get("is_left_out"))),
            default=field.default_factory() if has_factory else field.default,
            bytes_max=(is_strict and in_bytes[0].max_length) or UNBOUNDED if in_bytes else None,
            when=extra.get("when", ""),
            other=extra.get("or_called"),
            also=extra.get("also_called"),
            is_unsaid=bool(extra.get("is_unsaid")),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be called in a body."""
        encoded = (f"{self.called}_base64",) if self.bytes_max is not None else ()
        return (self.called, *encoded, *(() if self.other is None else (self.other,)))

    @property
    def is_read_otherwise(self) -> bool:
        """Whether reading it takes more than its value under its name."""
        return self.bytes_max is not None or self.other is not None

    @property
    def is_written_otherwise(self) -> bool:
        """Whether writing it takes more than its value under its name."""
        return self.is_left_out or self.bytes_max is not None

    def read_otherwise(self, body: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Put into ``values`` what ``body`` says, in whichever field."""
        field = self
        if self.other is not None and body.get(self.other) is not None:
            if body.get(self.called) is not None:
                raise WrongBody(f"expected {self.called} or {self.other}, found both")
            field = replace(self, called=self.other)
            values[self.when] = True
        value = field.read(body)
        if value is not None or self.is_required:
            values[self.name] = value

    def read(self, body: Mapping[str, Any]) -> Any:
        """Return the value that ``body`` has for it, None when it has none."""
        try:
            if self.bytes_max is not None:
                return _read_bytes(body, self, self.bytes_max)
            value = body.get(self.called)
            if value is not None:
                return self.form.read(value)
        except WrongBody as wrong:
            wrong.path = f".{self.called}{wrong.path}"
            raise
        if self.is_required and not self.is_nullable:
            what = nothing_said(body, self.called)
            raise WrongBody(f"expected {self.form.expected}, found {what}", f".{self.called}")
        return None

    def write_otherwise(self, body: dict[str, Any], encoding: Encoding) -> None:
        """Change what ``body`` has for it, the bare value, into what it says."""
        item = body[self.called]
        if self.is_left_out and item == self.default:
            del body[self.called]
        elif item is None:
            pass
        elif self.bytes_max is not None and encoding is Encoding.MSGPACK:
            pass  # bytes as they are
        elif self.bytes_max is not None:
            written = bytes_fields(self.called, item, encoding)
            if self.called not in written:
                del body[self.called]
            body.update(written)
        elif self.form.write is not None:
            body[self.called] = self.form.write(item, encoding)

    def rename(self, body: dict[str, Any]) -> None:
        """Call it in ``body`` what it is called while the field ``when`` is true."""
        if self.called in body:
            is_kept = self.other is None and not self.is_unsaid
            written = body[self.called] if is_kept else body.pop(self.called)
            body.update({name: written for name in (self.other, self.also) if name is not None})


def _read_bytes(body: Mapping[str, Any], field: BodyField, bytes_max: int) -> Any:
    """Return the bytes in ``data`` (text, or bytes in msgpack) or in ``data_base64``."""
    data = _bytes_in(body, field)
    if data is not None and len(data) > bytes_max:
        raise WrongBody(f"expected at most {bytes_max} bytes, found {len(data)}")
    return data


def _bytes_in(body: Mapping[str, Any], field: BodyField) -> Any:
    name = field.called
    value, encoded = body.get(name), body.get(f"{name}_base64")
    if encoded is None and isinstance(value, bytes):
        return value
    if encoded is None and isinstance(value, str):
        return value.encode("utf-8")
    if encoded is not None and value is None:
        decoded = read_base64(encoded)
        if decoded is not None:
            return decoded
        raise WrongBody(f"expected base64 (RFC 4648, section 4), found {found(encoded)}", "_base64")
    if value is not None and encoded is None:
        refuse("text", value)
    if value is not None or (field.is_required and not field.is_nullable):
        what = "none" if value is None else "both"
        raise WrongBody(f"expected {name} or {name}_base64, found {what}")
    return None
