"""The guard of an S3-style object store: the token is in the object, each write a conditional put.

::

    guard = S3Guard(boto3.client("s3"), bucket="reports", key="today")
    guard.check_store()                              # once: does this store honour conditions?
    guard.write(grant.fencing_token, b"...")
    guard.read()                                     # b"..."

1. The object is one line of JSON with the token, the highest write number under it and the id of
   the write, then your bytes. ``read`` leaves the line out; other readers skip it
   (``tail -n +2``).
2. A write looks at the object, refuses if it carries a higher token, and puts with
   ``If-Match: <ETag of what it looked at>`` (``If-None-Match: *`` for the first). If another client
   wrote in between, the store refuses with 412 and we look again. The put is the atomic step.
3. The token is not in the object's metadata, because an ETag is made of the content alone: a raise,
   or a write of the same bytes, would leave it as it was, and the put of a writer that was stopped
   before it would still match. The line makes every write's content, and so its ETag, unique.
4. A raise writes the whole object again; with large objects pass ``raise_on_acquire=False`` to the
   lock and know what it leaves open.
5. boto3 sends a put again when its answer was lost. The id of the write shows whether the first one
   happened; if another client has written it is unknown: OutcomeUnknownError.

boto3 has no asyncio API, so there is none here; a ``Lock`` on asyncio raises the guard in a
thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from coordinator.errors import BadArgumentsError, OutcomeUnknownError, TooManyRetriesError
from coordinator.guards.extras import missing_extra
from coordinator.guards.tokens import (
    checked_token,
    checked_write_number,
    refuse_lower,
    stale_write,
)

try:
    from botocore.exceptions import ClientError
except ImportError as error:
    raise missing_extra("S3Guard", "s3") from error

_TRIES_MAX = 20
_LINE_BYTES_MAX = 200
_NO_OBJECT = ""
_NOT_MET = {404, 409, 412}
"""Deleted, another conditional write under way, or changed: look again."""


class S3Client(Protocol):
    """What is used of ``boto3.client("s3")``."""

    def get_object(self, **arguments: Any) -> Any:
        """Read an object."""

    def put_object(self, **arguments: Any) -> Any:
        """Write an object."""

    def delete_object(self, **arguments: Any) -> Any:
        """Delete an object."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What an object carries; ``data`` may be cut short where only the line was asked for."""

    etag: str
    token: int
    write_id: str
    write_number: int
    """The highest under the token, 0 for none."""
    data: bytes


class S3Guard:
    """Guards one object; tokens are kept in it, and data is replaced as a whole."""

    def __init__(self, client: S3Client, *, bucket: str, key: str) -> None:
        self.resource = f"s3://{bucket}/{key}"
        self._client = client
        self._place = {"Bucket": bucket, "Key": key}

    def write(self, token: int, data: bytes, *, write_number: int | None = None) -> None:
        """Replace the object's data under ``token``.

        Raises:
            StaleTokenError: a higher token has been seen.
            StaleWriteError: this write number or a higher one has been seen under it.
            TooManyRetriesError: others wrote at each try; nothing was written.
            OutcomeUnknownError: an answer was lost and others have written.
        """
        number = checked_write_number(write_number)
        self._put(checked_token(token), lambda _: data, number, needs_data=False)

    def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``; writes the object again as it is."""
        token = checked_token(token)
        stored = self._look(needs_data=False)
        if stored is not None and stored.token == token:
            return
        self._put(token, lambda old: old.data if old is not None else b"", None, needs_data=True)

    def read(self) -> bytes | None:
        """Return the data, None if there is no object."""
        stored = self._look(needs_data=True)
        return None if stored is None else stored.data

    def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        stored = self._look(needs_data=False)
        return None if stored is None else stored.token

    def check_store(self) -> None:
        """Raise BadArgumentsError unless the store honours the conditions this guard lives by.

        Writes and deletes an object beside the guarded one.
        """
        probe = {**self._place, "Key": f"{self._place['Key']}.probe-{uuid4().hex}"}
        etag = self._client.put_object(**probe, Body=b"1", IfNoneMatch="*")["ETag"]
        try:
            refusals = (
                ("If-None-Match: *", {"IfNoneMatch": "*"}),
                ("If-Match", {"IfMatch": f'"{uuid4().hex}"'}),
            )
            for name, condition in refusals:
                try:
                    self._client.put_object(**probe, Body=b"2", **condition)
                except ClientError as error:
                    if _status_of(error) not in _NOT_MET:
                        raise
                else:
                    raise BadArgumentsError(
                        f"{self.resource}: this store ignores {name} on a put; nothing here "
                        f"would keep a stale writer out"
                    )
            self._client.put_object(**probe, Body=b"3", IfMatch=etag)
        finally:
            self._client.delete_object(**probe)

    def _put(
        self,
        token: int,
        data_of: Callable[[_Stored | None], bytes],
        number: int | None,
        *,
        needs_data: bool,
    ) -> None:
        write_id = uuid4().hex
        doubted_etag: str | None = None
        """What a put, whose answer may have been lost, was to replace."""
        for _ in range(_TRIES_MAX):
            stored = self._look(needs_data=needs_data)
            if stored is not None and stored.write_id == write_id:
                return  # done by a try whose answer was lost
            etag = _NO_OBJECT if stored is None else stored.etag
            self._refuse_doubt(token, doubted_etag, etag)
            highest_number = self._highest_number(token, stored)
            if number is not None and number <= highest_number:
                raise stale_write(self.resource, token, number, highest_number)
            condition = {"IfNoneMatch": "*"} if stored is None else {"IfMatch": etag}
            facts = {
                "fencing_token": token,
                "write_id": write_id,
                "write_number": number or highest_number,
            }
            body = json.dumps(facts).encode() + b"\n" + data_of(stored)
            try:
                self._client.put_object(**self._place, Body=body, **condition)
            except ClientError as error:
                if _status_of(error) not in _NOT_MET:
                    raise
                if _was_sent_again(error):
                    doubted_etag = etag
            else:
                return
        if doubted_etag is not None:  # the last refusal may be that of our own put, sent again
            stored = self._look(needs_data=False)
            if stored is not None and stored.write_id == write_id:
                return
            self._refuse_doubt(token, doubted_etag, _NO_OBJECT if stored is None else stored.etag)
        raise TooManyRetriesError(
            f"{self.resource}: expected to write once without another writer in between, found one "
            f"in each of {_TRIES_MAX} tries; nothing was written. Try again, or let only the "
            "holder of the lock write this object",
            path=self.resource,
            tries=_TRIES_MAX,
        )

    def _highest_number(self, token: int, stored: _Stored | None) -> int:
        """Return the highest write number seen under ``token``; refuse a lower token."""
        if stored is None:
            return 0
        refuse_lower(self.resource, token, stored.token)
        return stored.write_number if stored.token == token else 0

    def _refuse_doubt(self, token: int, doubted_etag: str | None, etag: str) -> None:
        """Raise if a put whose answer was lost may have been done, and written over since."""
        if doubted_etag not in (None, etag):
            raise OutcomeUnknownError(
                f"{self.resource}: the answer to the put under token {token} was lost and the "
                f"object has been written since; it is not known whether ours came before"
            )

    def _look(self, *, needs_data: bool) -> _Stored | None:
        part = {} if needs_data else {"Range": f"bytes=0-{_LINE_BYTES_MAX - 1}"}
        try:
            answer = self._client.get_object(**self._place, **part)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                return None
            if _status_of(error) == 416:  # no byte to range over: certainly not ours
                raise self._foreign() from error
            raise
        line, found, data = answer["Body"].read().partition(b"\n")
        try:
            facts = json.loads(line)
            token, write_id = facts["fencing_token"], facts["write_id"]
            token = checked_token(token)
            number = checked_write_number(facts.get("write_number") or None) or 0
        except (ValueError, TypeError, KeyError, BadArgumentsError) as error:
            raise self._foreign() from error
        if not found:
            raise self._foreign()
        return _Stored(answer["ETag"], token, write_id, number, data)

    def _foreign(self) -> BadArgumentsError:
        return BadArgumentsError(
            f"{self.resource}: expected an object written by this guard, found one without its "
            f"line; something else writes here, or did in the past"
        )


def _status_of(error: ClientError) -> int:
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def _was_sent_again(error: ClientError) -> bool:
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0))
