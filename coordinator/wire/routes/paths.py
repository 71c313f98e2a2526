"""From a request target to the path of a znode or a name: decoded once, hostile forms refused.

The raw target is taken apart by hand, because what a router, a proxy and a URL library each make of
``..``, ``//`` and ``%2F`` differs, and a difference is a hole (CVE-2024-23334 and its kind).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from coordinator.errors import BadArgumentsError
from coordinator.wire.strict_json import shortened

TREE_PREFIX: Final = "/v1/tree"
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLAIN: Final = re.compile(r"(/[A-Za-z0-9_\-~:@!$&'()*+,;=][A-Za-z0-9_.\-~:@!$&'()*+,;=]*)+")


_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_\-~:@!$&'()*+,;=][A-Za-z0-9_.\-~:@!$&'()*+,;=]*")


def target_path(target: str) -> str:
    """Return the path of a request target as sent, without query; also of an absolute-form one."""
    path = target.partition("?")[0]
    if not path.startswith("/"):
        _, _, rest = path.partition("://")
        path = "/" + rest.partition("/")[2]
    return path


def znode_path(target: str) -> str:
    """Return the absolute path of the znode that ``target``, below /v1/tree, names."""
    whole = target_path(target) if "?" in target or target[:1] != "/" else target
    path = whole[len(TREE_PREFIX) :]
    if not whole.startswith(TREE_PREFIX):  # the prefix itself may be percent-encoded
        path = "/" + "/".join(whole.split("/")[3:])
    if _PLAIN.fullmatch(path) is not None:
        return path  # nothing in it that could mean something else
    if path in ("", "/"):
        return "/"
    return "/" + "/".join(_segment(each, "path") for each in path[1:].split("/"))


def name_at(target: str, position: int, what: str) -> str:
    """Return the decoded segment at ``position`` (0 is ``v1``); here ``%2F`` is a slash."""
    path = target_path(target) if "?" in target or target[:1] != "/" else target
    segment = path.split("/")[position + 1]
    return segment if _PLAIN_NAME.fullmatch(segment) is not None else decoded(segment, what)


def path_url(path: str) -> str:
    """Return the URL of a znode, relative to this server."""
    return TREE_PREFIX + quote(path, safe="/-._~:@!$&'()*+,;=")


def decoded(segment: str, what: str) -> str:
    """Return ``segment`` percent-decoded once; raises BadArgumentsError for what is hostile."""
    if _PLAIN_NAME.fullmatch(segment) is not None:
        return segment
    if _BAD_ESCAPE.search(segment) is not None:
        raise BadArgumentsError(
            f"{what}: expected % to be followed by two hex digits, found {shortened(segment)!r}"
        )
    try:
        # The parser hands on bytes beyond ASCII as surrogate escapes.
        text = unquote_to_bytes(segment.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError:
        raise BadArgumentsError(
            f"{what}: expected UTF-8, found {shortened(ascii(segment))}"
        ) from None
    if text in ("", ".", ".."):
        raise BadArgumentsError(f"{what}: expected a name, found {text!r}")
    if _CONTROL.search(text) is not None:
        raise BadArgumentsError(
            f"{what}: expected no control characters, found {shortened(ascii(text))}"
        )
    return text


def _segment(segment: str, what: str) -> str:
    text = decoded(segment, what)
    if "/" in text:
        raise BadArgumentsError(
            f"{what}: expected %2F nowhere (a slash separates names), found {shortened(text)!r}"
        )
    return text
