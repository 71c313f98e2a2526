"""Requests that are drawn: good, odd and bad ones to every route."""

from __future__ import annotations

import json
import random
from typing import Any

from coordinator.wire.http.openapi_operations import OPERATIONS

SEGMENTS = [
    "a", "b", "..", ".", "%2e%2e", "%2F", "%00", "%0a", "%ff", "%", "%zz", "x" * 300,
    "%F0%9F%98%80",
    "a%20b", "{}", "a'b", "~", "lock-", "0-1", "1-2", "1", "0", "-1", "9" * 25, "", "%25", "*",
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, "",
    "a",
    "/a", "/a/b", "a\x00b", "\ud800", "😀", "x" * 3_000, [], [[]], [{}], {}, {"a": 1}, "persistent",
    "ephemeral", "ttl", "container", "create", "set", "delete", "check", "read", "leave", "stay",
    "00000000000000aa", "AP8=", "znode", "subtree",
]  # fmt: skip

FIELDS = [
    "data", "data_base64", "mode", "session_id", "ttl_ms", "parents", "expected_version", "op",
    "path",
    "operations", "conditions", "then", "otherwise", "exists", "has_children", "watches", "kind",
    "from_zxid", "one_shot", "timeout_ms", "lease_ms", "label", "host", "pid", "trace_id", "value",
    "on_disconnect", "unknown", "recursive",
]  # fmt: skip

QUERIES = [
    "stale", "at_least_zxid=1", "children", "raw", "limit=0", "limit=1", "after=%ff", "stat",
    "create",
    "recursive", "expected_version=1", "expected_czxid=x", "fencing_token=-1", "floor_index=1",
    "path=/a",
    "path=%2e", "kind=x", "one_shot", "from_zxid=0", "observe", "&&", "=", "%", "a=b", "mode=ttl",
]  # fmt: skip

RAW_BODIES = [
    b"",
    b"{",
    b"\xff",
    b'{"a":NaN}',
    b'{"a":1,"a":2}',
    b"[" * 2_000,
    b"\xc1",
    b"null",
    b"[]",
]

HEADERS = [
    ("Coordinator-Client-Id", "c"),
    ("Coordinator-Client-Id", " "),
    ("Coordinator-Request-Number", "1"),
    ("Coordinator-Request-Number", "x"),
    ("Coordinator-Floor-Index", "9999999"),
    ("Coordinator-Timeout-Ms", "50"),
    ("Coordinator-Timeout-Ms", "-1"),
    ("If-Match", '"0"'),
    ("If-Match", "x"),
    ("If-None-Match", '"0"'),
    ("Last-Event-ID", "x"),
    ("Accept", "application/msgpack"),
    ("Accept", "application/x-ndjson"),
    ("Content-Type", "application/msgpack"),
    ("Content-Type", "text/plain"),
    ("Content-Encoding", "gzip"),
    ("Sec-Fetch-Site", "cross-site"),
]


class Chance:
    """Draws requests from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        if depth < 4 and self._random.random() < 0.3:
            return [self.body(depth + 1) for _ in range(self._random.randrange(3))]
        return self._random.choice(VALUES)

    def body(self, depth: int = 0) -> Any:
        if self._random.random() < 0.1:
            return self.value(depth)
        names = self._random.sample(FIELDS, self._random.randrange(5))
        return {name: self.value(depth) for name in names}

    def request(self) -> tuple[str, str, dict[str, str], bytes]:
        draw = self._random
        described = draw.choice(list(OPERATIONS.values()))
        method = draw.choice([described.method] * 5 + ["GET", "PATCH", "OPTIONS", "POST", "BREW"])
        path = described.template
        while "{" in path:
            name = path.partition("{")[2].partition("}")[0]
            count = draw.randrange(1, 4) if name == "path" else 1
            segments = "/".join(draw.choice(SEGMENTS) for _ in range(count))
            path = path.replace(f"{{{name}}}", segments.replace("{}", "%7B"), 1)
        if draw.random() < 0.4:
            path += "?" + "&".join(draw.sample(QUERIES, draw.randrange(1, 4)))
        headers = dict(draw.sample(HEADERS, draw.randrange(3)))
        if method in ("GET", "HEAD") or draw.random() < 0.1:
            return method, path, headers, b""
        if draw.random() < 0.3:
            return method, path, headers, draw.choice(RAW_BODIES)
        headers.setdefault("Content-Type", "application/json")
        return method, path, headers, json.dumps(self.body()).encode()
