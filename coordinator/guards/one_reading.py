"""The check that every service reads a request in one way; the fencing proxy refuses others.

The proxy decides by method and path which resource a request writes. A service that takes another
method or path from the same request (a header, a field of a form, a piece of the path that it cuts
off) would write what was not checked. So a request that some service may read otherwise is refused.

1. A path has no fragment, parameters (``;``), dot segments, doubled or encoded slashes, backslash,
   nothing to be decoded twice, and no segment that ends in a dot or a space (Windows drops those).
2. The method is that of the request line: a header, a parameter or a form's field that names
   another is refused, and so is a header that names another path.
3. CGI and WSGI make ``-`` and ``_`` in the names of headers the same, so they are compared as one,
   and a header with ``_`` that is no override is not forwarded (nginx drops them, too).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote, unquote_plus

from coordinator.errors import BadArgumentsError

_OVERRIDING_HEADERS = frozenset({
    "x-http-method-override", "x-http-method", "x-method-override", "x-method",
    "x-forwarded-method", "x-original-method",
    "x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-override-url",
    "x-forwarded-uri", "x-forwarded-path", "x-replaced-path",
})  # fmt: skip
_OVERRIDING_FIELDS = frozenset(
    {"_method", "_httpmethod", "_http_method", "x_http_method_override", "x_http_method"}
)
_SEPARATORS = re.compile("[&;]")
"""A service may take ``;`` between fields, as HTML 4 said and several frameworks do."""
_ONE_NAME = re.compile(r"[-.\s\[]")
"""PHP makes these in a field's name to ``_``, so ``.method`` is ``_method``."""
_FIELD_OF_PART = re.compile(rb"name\*?\s*=\s*\"?([^\";\r\n]*)", re.IGNORECASE)
_CUT_OFF = frozenset("\\#;?")
_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


def plain_path(target: str) -> str:
    """Return the decoded path of a request's target.

    Raises:
        BadArgumentsError: a service could read it as another one.
    """
    raw = target.partition("?")[0]
    try:
        path = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        path = ""
    segments = path.split("/")[1:]
    is_plain = (
        path.startswith("/")
        and path.isprintable()
        and not _CUT_OFF & set(path)
        and "#" not in target  # not in the query either: what follows is cut off
        and "%2f" not in raw.lower()
        and "%25" not in raw  # decoded once more it would be another path
        and not any(each in ("", ".", "..") for each in segments[:-1])
        and not any(each.endswith((".", " ")) for each in segments)
    )
    if not is_plain:
        raise BadArgumentsError(f"path: expected one that reads in one way only, found {raw!r}")
    return path


def refuse_overrides(headers: Iterable[str], target: str) -> None:
    """Refuse a request whose headers or query name another method or path.

    Raises:
        BadArgumentsError: they do.
    """
    for name in headers:
        if name.lower().replace("_", "-") in _OVERRIDING_HEADERS:
            raise BadArgumentsError(
                f"header {name!r}: expected the method and the path in the request line alone"
            )
    for name in _names_in(target.partition("?")[2]):
        _refuse_field(name)


def refuse_form_overrides(headers: Mapping[str, str], body: bytes) -> None:
    """Refuse a form with a field that names another method.

    Raises:
        BadArgumentsError: it has one, or may have.
    """
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in _FORMS and "Content-Encoding" in headers:
        raise BadArgumentsError("form: expected one that is not compressed, so that it can be read")
    if kind == "application/x-www-form-urlencoded":
        for name in _names_in(body.decode("latin-1")):
            _refuse_field(name)
    elif kind in _FORMS:
        for found in _FIELD_OF_PART.findall(body):
            _refuse_field(found.decode("latin-1"))
        for field in _OVERRIDING_FIELDS:  # however its part is written
            if field.encode("ascii") in body.lower():
                _refuse_field(field)


def forwarded(headers: Mapping[str, str], dropped: Iterable[str]) -> list[tuple[str, str]]:
    """Return the headers to forward: all but ``dropped``, and those whose names have two forms."""
    left_out = {*dropped}
    return [
        (name, value)
        for name, value in headers.items()
        if name.lower() not in left_out and "_" not in name
    ]


def _names_in(text: str) -> Iterator[str]:
    """Return the names of fields, by whatever a service takes for the end of one."""
    for part in _SEPARATORS.split(text):
        yield unquote_plus(part.partition("=")[0], errors="replace")


def _refuse_field(name: str) -> None:
    whole = name.partition("\0")[0].strip().lower()
    readings = {_ONE_NAME.sub("_", each) for each in (whole, whole.partition("[")[0])}
    if readings & _OVERRIDING_FIELDS:
        raise BadArgumentsError(
            f"field {name!r}: expected the method in the request line alone; some services take "
            "another one from here"
        )
