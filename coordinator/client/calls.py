"""How a call is said: method, target, headers, body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from coordinator.client.lanes import Lane
from coordinator.client.transport import Request
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.messages import TIMEOUT_HEADER

PACKED = Encoding.MSGPACK
"""What carries the data of znodes: bytes as they are."""


@dataclass(frozen=True, slots=True)
class Call:
    """What to ask; ``target`` is percent-encoded. ``body`` None sends none."""

    method: str
    target: str
    body: Any = None
    encoding: Encoding = Encoding.JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    accept: str = Encoding.JSON.value

    def request(self, timeout_ms: int | None, lane: Lane | None) -> Request:
        headers = {"Accept": self.accept, **self.headers}
        if timeout_ms is not None:
            headers[TIMEOUT_HEADER] = str(timeout_ms)
        if lane is not None:
            headers.update(lane.headers())
        body = None
        if self.body is not None:
            headers["Content-Type"] = self.encoding.value
            body = encode(self.body, self.encoding)
        return Request(self.method, self.target, headers, body)


def target_of(*segments: str) -> str:
    """Return the percent-encoded target of a route below /v1."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def packed(method: str, target: str, body: Any = None) -> Call:
    """Return a call whose bodies are msgpack, both ways."""
    return Call(method, target, body, encoding=PACKED, accept=PACKED.value)


def tree_target(path: str, query: Sequence[tuple[str, str]] = ()) -> str:
    """Return the target of the znode at ``path``."""
    target = "/v1/tree" + quote(path if path.startswith("/") else "/" + path, safe="/")
    return target + ("?" + urlencode(query) if query else "")


def read_mode(stale: bool, at_least_zxid: int | None) -> list[tuple[str, str]]:
    """Return the query that says how fresh a read must be; none is linearizable."""
    if stale:
        return [("stale", "")]
    return [] if at_least_zxid is None else [("at_least_zxid", str(at_least_zxid))]
