"""The names of the headers and of the media types, shared by the server and the client."""

from __future__ import annotations

CLIENT_ID_HEADER = "Coordinator-Client-Id"
REQUEST_NUMBER_HEADER = "Coordinator-Request-Number"
FLOOR_INDEX_HEADER = "Coordinator-Floor-Index"
TIMEOUT_HEADER = "Coordinator-Timeout-Ms"
ZXID_HEADER = "Coordinator-Zxid"
INDEX_HEADER = "Coordinator-Index"
MEMBER_HEADER = "Coordinator-Member"
SESSION_ID_HEADER = "Coordinator-Session-Id"
SAFE_HEADER = "Coordinator-Safe-Ms"
STALE_AGE_HEADER = "Coordinator-Stale-Age-Ms"

AUTHORIZATION = "authorization"
"""The header that shows a token, in lower case."""

PROBLEM_TYPE = "application/problem+json"
NDJSON_TYPE = "application/x-ndjson"
EVENT_STREAM_TYPE = "text/event-stream"
RAW_TYPE = "application/octet-stream"
