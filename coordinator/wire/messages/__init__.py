"""Request and response shapes, shared by the server and the client; no I/O.

One module for each noun: ``acquire`` (the wish), ``if_held`` (a condition of any write).
A shape turns into a body with ``to_body`` and is read back with ``from_body``;
``coordinator.wire.encoding`` turns a body into bytes, in JSON or msgpack. The names of the headers
are here.
"""

from __future__ import annotations

CLIENT_ID_HEADER = "Coordinator-Client-Id"
REQUEST_NUMBER_HEADER = "Coordinator-Request-Number"
FLOOR_INDEX_HEADER = "Coordinator-Floor-Index"
TIMEOUT_HEADER = "Coordinator-Timeout-Ms"
ZXID_HEADER = "Coordinator-Zxid"
INDEX_HEADER = "Coordinator-Index"
MEMBER_HEADER = "Coordinator-Member"
STALE_AGE_HEADER = "Coordinator-Stale-Age-Ms"

PROBLEM_TYPE = "application/problem+json"
NDJSON_TYPE = "application/x-ndjson"
EVENT_STREAM_TYPE = "text/event-stream"
RAW_TYPE = "application/octet-stream"
