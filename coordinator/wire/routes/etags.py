"""ETags and preconditions: which data of which incarnation of a znode a client has seen.

1. ``"<version>-<czxid>"``: a version alone comes again when a znode is deleted and created again.
2. ``If-Match`` also takes ``"<version>"``, which is ``expected_version`` by another name.
3. A precondition that would not be judged is refused: a client that asked not to overwrite must not
   learn by the loss that nobody listened (RFC 9110, section 13.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from coordinator.errors import BadArgumentsError
from coordinator.model.fields import ANY_VERSION, INTEGER_MAX
from coordinator.state.outcomes import Stat
from coordinator.wire.request import IncomingRequest
from coordinator.wire.routes.paths import TREE_PREFIX
from coordinator.wire.strict_json import shortened

_TAG: Final = re.compile(r'"(\d{1,19})(?:-(\d{1,19}))?"', re.ASCII)
_OTHERS: Final = {
    name.lower(): name
    for name in ("If-None-Match", "If-Unmodified-Since", "If-Modified-Since", "If-Range")
}
_EVERY: Final = {"if-match": "If-Match", **_OTHERS}
"""By the name that they are looked up by."""
_ANY: Final = frozenset(_EVERY)


@dataclass(frozen=True, slots=True)
class Expected:
    """What ``If-Match`` expects; ``*`` is any version of what is there."""

    version: int = ANY_VERSION
    czxid: int | None = None
    is_given: bool = False


_NOTHING_EXPECTED: Final = Expected()


def etag_of(stat: Stat) -> str:
    """Return the ETag of a znode's data."""
    return f'"{stat.version}-{stat.czxid}"'


def is_unchanged(request: IncomingRequest, tag: str) -> bool:
    """Return whether ``If-None-Match`` names ``tag``, or anything."""
    named = [each.strip() for each in (request.headers.get("if-none-match") or "").split(",")]
    return tag in named or named == ["*"]


def expected(request: IncomingRequest) -> Expected:
    """Return what a change expects of the znode, by its headers.

    Raises:
        BadArgumentsError: ``If-Match`` is not one ETag, or there is a precondition of another kind.
    """
    headers = request.headers
    if type(headers) is dict and _ANY.isdisjoint(headers):
        return _NOTHING_EXPECTED
    for each, name in _OTHERS.items():
        if each in headers:
            raise BadArgumentsError(
                f"{name}: expected If-Match or expected_version as the condition of a change "
                f"(POST creates only what is not there), found {name}"
            )
    given = request.header_values("if-match")
    if not given:
        return _NOTHING_EXPECTED
    tag = given[0].strip()
    if len(given) == 1 and tag == "*":
        return Expected(is_given=True)
    match = _TAG.fullmatch(tag)
    numbers = [] if match is None else [int(each) for each in match.groups() if each]
    if len(given) > 1 or not numbers or max(numbers) > INTEGER_MAX:
        found = shortened(ascii(", ".join(given)))
        raise BadArgumentsError(f'If-Match: expected one ETag such as "3-89" or "3", found {found}')
    return Expected(numbers[0], numbers[1] if len(numbers) > 1 else None, is_given=True)


def refuse_preconditions(request: IncomingRequest) -> None:
    """Raise BadArgumentsError for a precondition of a change that knows none."""
    if type(request.headers) is dict and _ANY.isdisjoint(request.headers):
        return  # names in small letters, as they are looked up by
    for each, name in _EVERY.items():
        if each in request.headers:
            raise BadArgumentsError(
                f"{name}: expected none here (PUT and DELETE of {TREE_PREFIX} judge If-Match; "
                f"any write takes if_held), found {shortened(ascii(request.headers[each]))}"
            )


def refuse_on_create(request: IncomingRequest) -> None:
    """Raise BadArgumentsError for a precondition, beside the one that every create has anyway."""
    for each, name in _EVERY.items():
        value = request.headers.get(each)
        if value is not None and (name, value.strip()) != ("If-None-Match", "*"):
            raise BadArgumentsError(
                f"{name}: expected none (a create is refused if the znode exists), "
                f"found {shortened(ascii(value))}"
            )
