"""The share of a watch in the stream of an equal one, so that it need not open its own.

A watch that joins begins where a member would let it begin: behind the last line that has come, if
the client has seen nothing later, or after a zxid that is not before that line. Else it opens one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from coordinator.client.calling.answers import encoding_of
from coordinator.errors import BadArgumentsError
from coordinator.model.events import Resync, Watching, WatchRequest
from coordinator.wire.codec import encoded
from coordinator.wire.encoding import decode

_WITH_A_ZXID = ("watching", "change", "bookmark")


class WatchShare(NamedTuple):
    """A watch that is about to begin: ``form`` without its begin, and whose it is."""

    form: WatchRequest
    authorization: str | None
    from_zxid: int | None
    seen_zxid: int
    """Up to which the client has seen what was changed."""

    @property
    def key(self) -> Hashable:
        """What watches have in common that may share a stream."""
        return self.form, self.authorization

    def first_line(self, last_line: bytes, headers: Mapping[str, str]) -> bytes | None:
        """Return with what it begins if it joins behind ``last_line``; None if it must not."""
        encoding = encoding_of(headers)
        try:
            line: Any = decode(last_line, encoding)
        except BadArgumentsError:
            return None  # who reads it finds that out
        if not isinstance(line, dict) or line.get("type") not in _WITH_A_ZXID:
            return None
        zxid = line.get("zxid")
        if type(zxid) is not int:
            return None
        if self.from_zxid is None:
            return encoded(Watching(zxid), encoding) if zxid >= self.seen_zxid else None
        return encoded(Watching(self.from_zxid), encoding) if zxid <= self.from_zxid else None

    def last_line(self, headers: Mapping[str, str]) -> bytes:
        """Return with what it ends that has fallen behind: it goes on from its last zxid."""
        return encoded(Resync(0), encoding_of(headers))
