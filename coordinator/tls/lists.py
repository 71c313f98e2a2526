"""Revocation lists (CRL) in a file of CAs: until when they count. Pure.

OpenSSL refuses every certificate once the list of its CA is out of date, and says so only then. A
CA that renews its list each week is no surprise, so the last quarter of that time is the warning.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

SOON_MS_MAX = 14 * 24 * 3_600_000
_LIST = re.compile(rb"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", re.DOTALL)
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""UTCTime and GeneralizedTime (RFC 5280, section 4.1.2.5), by tag."""


class ListEnd(NamedTuple):
    """When a list is out of date, and from when on that is worth a warning."""

    expires_ms: int
    warns_ms: int


def first_end(ca_file: bytes) -> ListEnd | None:
    """Return the end of the list that ends first; None if none of ``ca_file`` has one."""
    found = [_end(base64.b64decode(body)) for body in _LIST.findall(ca_file)]
    return min((each for each in found if each is not None), default=None)


def _end(revocations: bytes) -> ListEnd | None:
    """Read thisUpdate and nextUpdate of a list (DER; RFC 5280, section 5.1)."""
    (_, whole), *_ = _parts(revocations)
    (_, to_be_signed), *_ = _parts(whole)
    times = [
        datetime.strptime(value.decode("ascii"), _TIMES[tag]).replace(tzinfo=UTC)
        for tag, value in _parts(to_be_signed)
        if tag in _TIMES
    ]
    if len(times) < 2:
        return None  # without an end
    began_ms, expires_ms = (int(each.timestamp() * 1_000) for each in times[:2])
    return ListEnd(expires_ms, expires_ms - min(SOON_MS_MAX, (expires_ms - began_ms) // 4))


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the values behind one another in DER: tag and content of each."""
    while len(content) >= 2:
        head = 2 + (content[1] & 0x7F if content[1] & 0x80 else 0)
        length = int.from_bytes(content[2:head], "big") if head > 2 else content[1]
        yield content[0], content[head : head + length]
        content = content[head + length :]
