"""An object store in memory, with the moments that a real one does not show."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError


def refusal(code: str, status: int, operation: str, *, retries: int = 0) -> ClientError:
    facts: Any = {
        "Error": {"Code": code},
        "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": retries},
    }
    return ClientError(facts, operation)


class Store:
    """An object store in memory that honours conditions, with moments for others to write in.

    ETags are digests of the content, as in S3. ``before_put`` is called before each put takes
    effect, ``after_put`` before its answer is given.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.before_put: Callable[[], None] = lambda: None
        self.after_put: Callable[[], None] = lambda: None
        self.ignores_conditions = False
        self._turn = threading.Lock()

    def get_object(self, *, Bucket: str, Key: str, Range: str = "bytes=0-") -> Any:
        if Key not in self.objects:
            raise refusal("NoSuchKey", 404, "GetObject")
        end = Range.removeprefix("bytes=0-")
        body = self.objects[Key]
        part = body[: int(end) + 1] if end else body
        return {"ETag": etag_of(body), "Body": io.BytesIO(part)}

    def put_object(
        self, *, Bucket: str, Key: str, Body: bytes, IfMatch: str = "", IfNoneMatch: str = ""
    ) -> Any:
        before, self.before_put = self.before_put, lambda: None
        before()
        self._put(Key, Body, IfMatch, IfNoneMatch, retries=0)
        after, self.after_put = self.after_put, lambda: None
        after()
        return {"ETag": etag_of(Body)}

    def delete_object(self, *, Bucket: str, Key: str) -> Any:
        self.objects.pop(Key, None)

    def put_again(self, Key: str, Body: bytes, IfMatch: str, IfNoneMatch: str = "") -> None:
        self._put(Key, Body, IfMatch, IfNoneMatch, retries=1)

    def _put(self, key: str, body: bytes, match: str, none_match: str, *, retries: int) -> None:
        with self._turn:
            found = self.objects.get(key)
            is_met = (not none_match or found is None) and (
                not match or (found is not None and match == etag_of(found))
            )
            if not is_met and not self.ignores_conditions:
                raise refusal("PreconditionFailed", 412, "PutObject", retries=retries)
            self.objects[key] = body


def etag_of(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()}"'
