"""The values of the model as bodies, and bodies as values: made from their definitions.

``to_body`` writes a value as plain objects, arrays, texts and numbers; ``from_body`` reads them
back; ``coordinator.wire.encoding`` turns those into bytes, in JSON or msgpack.

1. A kind with ``forbid_unknown_fields`` is a request: read strictly (a mistyped ``timeot_ms`` must
   not be silently ignored, bounds and lists of words hold), and written without what has its
   default. Any other kind is an answer: a client lives with fields, words and numbers that a later
   server adds; it is written whole, but for what is ``LEFT_OUT``.
2. Null is as good as absent where a field has a default or may be null.
3. Bytes travel as ``data`` or, in JSON, as ``data_base64`` when they are not clean text.
4. Whatever is wrong is a BadArgumentsError that says where, what was expected and what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, inspect
from msgspec.structs import asdict

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.fields import INTEGER_MAX, INTEGER_MIN
from coordinator.wire.body_fields import BodyField, nothing_said
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.forms import (
    BOOLEAN,
    BYTES,
    PROBLEM,
    Form,
    Length,
    WrongBody,
    array,
    integer,
    mapping,
    members_of,
    refuse,
    text,
    words_of,
)
from coordinator.wire.strict_json import found, shortened

Value = TypeVar("Value")

_NEAR_CHARACTERS_MAX: Final = 64
"""The part of an unknown name that is compared with those that are known."""


def to_body(value: Any, encoding: Encoding = Encoding.JSON, *, given: Collection[str] = ()) -> Any:
    """Return ``value`` as a body.

    The fields ``given`` are said elsewhere, in the URL; a value with such is no item of a list, and
    says nothing of its kind.
    """
    return form_of(type(value)).write(value, encoding, given)


def from_body(
    kind: type[Value],
    body: Any,
    where: str = "body",
    *,
    given: Mapping[str, Any] | None = None,
    beside: Collection[str] = (),
) -> Value:
    """Return the value of ``kind`` that ``body`` says; messages call the body ``where``.

    The fields ``given`` are said elsewhere, in the URL, and those called ``beside`` may be in the
    body but belong to another value.

    Raises:
        BadArgumentsError: it says none.
    """
    try:
        value: Value = form_of(kind).read(body, given or {}, beside)
    except WrongBody as wrong:
        raise BadArgumentsError(f"{where}{wrong.path}: {wrong.problem}") from None
    return value


def encoded(body: Any, encoding: Encoding = Encoding.JSON) -> bytes:
    """Return ``body``, or a value of the model, as bytes on the wire."""
    if isinstance(body, Struct):
        body = to_body(body, encoding)
    return encode(body, encoding)


def reader(kind: type[Value]) -> BodyReader[Value]:
    """Return what reads a body as a value of ``kind``."""
    found = _readers.get(kind)
    if found is None:
        found = _readers[kind] = BodyReader(kind)
    return found


class BodyReader(Generic[Value]):
    """Reads a body as a value of ``kind``."""

    __slots__ = ("kind",)

    def __init__(self, kind: type[Value]) -> None:
        self.kind = kind

    def __call__(self, body: Any) -> Value:
        return from_body(self.kind, body)


_readers: Final[dict[type[Any], BodyReader[Any]]] = {}


def union_from_body(kinds: Any, body: Any, where: str = "body") -> Any:
    """Return the value that ``body`` says, of one of the ``kinds`` (a union of tagged structs)."""
    try:
        return _union(kinds).read(body)
    except WrongBody as wrong:
        raise BadArgumentsError(f"{where}{wrong.path}: {wrong.problem}") from None


@cache
def _union(kinds: Any) -> Form:
    return _form(inspect.type_info(kinds), is_strict=False)


def unknown_name(unknown: Iterable[str], known: Iterable[str], what: str) -> str:
    """Say which of the names is not known, which one may be meant, and which there are."""
    names = sorted(known)
    first, *others = sorted(unknown)
    near = get_close_matches(first[:_NEAR_CHARACTERS_MAX], names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    more = f" (and {len(others)} more)" if others else ""
    there = f"The {what}s are {', '.join(names)}" if names else f"There are no {what}s here"
    return f"found the unknown {what} {shortened(ascii(first))}{more}{meant} {there}"


# --- one value


def _form(kind: inspect.Type, *, is_strict: bool) -> Form:
    match kind:
        case inspect.Metadata(inner, _, extra):
            form = _form(inner, is_strict=is_strict)
            if extra is not None and "one_of" in extra and is_strict:
                return words_of(extra["one_of"], form)
            return form
        case inspect.IntType(ge=low, le=high) if is_strict:
            return integer(INTEGER_MIN if low is None else low, high or INTEGER_MAX)
        case inspect.IntType():
            return integer(INTEGER_MIN, INTEGER_MAX)
        case inspect.StrType(max_length=length):
            return text(length if is_strict else None)
        case inspect.BoolType():
            return BOOLEAN
        case inspect.BytesType():
            return BYTES
        case inspect.EnumType(cls):
            return members_of(cls, is_strict=is_strict)
        case inspect.VarTupleType(item_type=item):
            return array(_form(item, is_strict=is_strict), Length.of(kind, is_strict))
        case inspect.DictType(value_type=item):
            return mapping(_form(item, is_strict=is_strict), Length.of(kind, is_strict))
        case inspect.StructType(cls) | inspect.NamedTupleType(cls):
            return _object(cls)
        case inspect.UnionType(types):
            several = [each for each in types if not isinstance(each, inspect.NoneType)]
            if len(several) == 1:
                return _form(several[0], is_strict=is_strict)
            texts = [each for each in several if isinstance(each, inspect.StrType)]
            objects = [each for each in several if each not in texts]
            form = _tagged(objects) if len(objects) > 1 else _form(objects[0], is_strict=is_strict)
            return _text_or(form) if texts else form
        case inspect.CustomType(cls) if cls is CoordinatorError:
            return PROBLEM
    raise TypeError(f"no body carries {kind}")


def _text_or(form: Form) -> Form:
    """Return the form of a text, or of an object."""

    def read(value: Any) -> Any:
        return value if isinstance(value, str) else form.read(value)

    def write(value: Any, encoding: Encoding) -> Any:
        return to_body(value, encoding) if isinstance(value, Struct) else value

    return Form("text or an object", read, write)


def _object(kind: type[Any]) -> Form:
    def read(value: Any) -> Any:
        return form_of(kind).read(value, {}, ())

    def write(value: Any, encoding: Encoding) -> Any:
        return form_of(kind).write(value, encoding, ())

    return Form("an object", read, write)


def _tagged(kinds: list[Any]) -> Form:
    """Return the form of one of several kinds: a field of it says which."""
    name = kinds[0].tag_field
    by_tag = {each.tag: each.cls for each in kinds}
    word = words_of(by_tag, text(None))

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            refuse("an object", value)
        tag = value.get(name)
        if tag is None:
            what = nothing_said(value, name)
            raise WrongBody(f"expected {word.expected}, found {what}", f".{name}")
        try:
            kind = by_tag[word.read(tag)]
        except WrongBody as wrong:
            wrong.path = f".{name}"
            raise
        return form_of(kind).read(value, {}, ())

    def write(value: Any, encoding: Encoding) -> Any:
        return form_of(type(value)).write(value, encoding, ())

    return Form("an object", read, write)


# --- the fields of an object


_forms: Final[dict[type[Any], ObjectForm]] = {}


def form_of(kind: type[Any]) -> ObjectForm:
    """Return how values of ``kind`` are read and written."""
    form = _forms.get(kind)
    if form is None:
        form = _forms[kind] = ObjectForm(kind)
    return form


def _bare_values(kind: type[Any], fields: Sequence[BodyField]) -> Callable[[Any], dict[str, Any]]:
    """Return what makes a body of the bare values, in the fastest of three ways."""
    names, called = [each.name for each in fields], [each.called for each in fields]
    pairs = partial(zip, called)
    if getattr(kind, "_fields", None) == tuple(names):
        return lambda value: dict(pairs(value))
    if getattr(kind, "__struct_fields__", None) == tuple(called) == tuple(names):
        return asdict
    places = tuple(zip(names, called, strict=True))

    def bare(value: Any) -> dict[str, Any]:
        body = {}
        for name, as_called in places:
            body[as_called] = getattr(value, name)
        return body

    return bare


class ObjectForm:
    """How the values of one class are read and written: its definition, looked at once."""

    def __init__(self, kind: type[Any]) -> None:
        info: Any = inspect.type_info(kind)
        self._kind = kind
        self._is_strict = getattr(info, "forbid_unknown_fields", False)
        self._tag_field: str | None = getattr(info, "tag_field", None)
        self._tag: Any = getattr(info, "tag", None)
        form = partial(_form, is_strict=self._is_strict)
        fields = [BodyField.of(each, form, is_strict=self._is_strict) for each in info.fields]
        self._fields = tuple([each for each in fields if each is not None])
        self._known = {name for each in self._fields for name in each.names}
        if self._tag_field is not None:
            self._known.add(self._tag_field)
        self._bare = _bare_values(kind, self._fields)
        self._tagged = {} if self._tag_field is None else {self._tag_field: self._tag}
        self._hidden: dict[tuple[str, ...], frozenset[str | None]] = {}
        self._reads = [
            (each.name, each.called, None if each.is_read_otherwise else each.form.read, each)
            for each in self._fields
        ]
        self._changes = [
            (each.name, each.called, None if each.is_written_otherwise else each.form.write, each)
            for each in self._fields
            if each.is_written_otherwise or each.form.write is not None
        ]
        """The fields that are not in a body what they are in the model."""
        self._renamed = [each for each in self._fields if each.when]
        self._when = self._renamed[0].when if self._renamed else ""

    def read(self, body: Any, given: Mapping[str, Any], beside: Collection[str]) -> Any:
        """Return the value that ``body`` says; raises WrongBody."""
        if not isinstance(body, Mapping):
            refuse("an object", body)
        if self._is_strict and not self._knows(body, given):
            self._refuse_unknown(body, given, beside)
        if self._tag_field is not None and body.get(self._tag_field) not in (None, self._tag):
            raise WrongBody(
                f"expected one of {self._tag}, found {found(body[self._tag_field])}",
                f".{self._tag_field}",
            )
        values = dict(given)
        for name, called, read, field in self._reads:
            if name in given:
                continue
            item = body.get(called)
            if read is None:
                field.read_otherwise(body, values)
            elif item is not None:
                try:
                    values[name] = read(item)
                except WrongBody as wrong:
                    wrong.path = f".{called}{wrong.path}"
                    raise
            elif field.is_required:
                values[name] = field.read(body)  # null, or a refusal
        return self._kind(**values)

    def _knows(self, body: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
        if not body.keys() <= self._known:
            return False
        return not given or self._elsewhere(given).isdisjoint(body)

    def _elsewhere(self, given: Mapping[str, Any]) -> frozenset[str | None]:
        """Return the names that no body has where the fields ``given`` are said elsewhere."""
        names = tuple(given)
        hidden = self._hidden.get(names)
        if hidden is None:
            encoded = [f"{name}_base64" for name in names]
            hidden = self._hidden[names] = frozenset({*names, *encoded, self._tag_field})
        return hidden

    def _refuse_unknown(
        self, body: Mapping[str, Any], given: Mapping[str, Any], beside: Collection[str]
    ) -> None:
        known = self._known.union(beside) - (self._elsewhere(given) if given else set())
        if unknown := body.keys() - known:
            raise WrongBody(unknown_name(unknown, known, "field"))

    def write(self, value: Any, encoding: Encoding, given: Collection[str]) -> dict[str, Any]:
        """Return ``value`` as an object: the bare values, and then what is written otherwise."""
        body = self._bare(value)
        if not given and self._tagged:
            body = {**self._tagged, **body}
        if given:
            for field in self._fields:
                if field.name in given:
                    del body[field.called]
        for name, called, write, field in self._changes:
            if name in given:
                continue
            if write is None:
                field.write_otherwise(body, encoding)
            elif (item := body[called]) is not None:
                body[called] = write(item, encoding)
        if self._when and getattr(value, self._when):
            for field in self._renamed:
                field.rename(body)
        return body
