"""The snapshot: the whole replicated state as a stream of rows with a digest at the end.

The stream: a header row (what it is, format number, applied index, zxid, counts); a row of the
limits and the rules; then the znodes (``znode_rows``), open sessions, leaving sessions, revoked
credentials with sessions still to be ended, clients with their outcomes, of which many share a row,
ended sessions, released contenders, contenders, sizes of semaphores, lock-delays, grants that
ended, the queues with contenders still to be granted, a row of access rights, roles, and
identities, each in the order the state keeps them; then 32 raw bytes, the SHA-256 of everything
before.

1. A capture is cheap at any size and does not change afterwards (``large_map``). It is encoded
   as its pieces are drawn.
2. Decoding returns a capture only if the stream is complete and its digest is right. Any damage is
   a ValueError before anything is replaced.
3. The header has the format number. A snapshot of another format is refused.
4. Members with the same history write the same bytes. ``digest_of`` covers the same rows, with
   znodes and locks sorted by path and without the applied index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import NAMES, MachineLimits
from coordinator.state.access.encoding import (
    caller_of,
    identity_of,
    identity_row,
    role_of,
    role_row,
)
from coordinator.state.access.table import AccessCapture
from coordinator.state.capture_hold import CaptureHold
from coordinator.state.dedup import ClientRecord, RequestsCapture
from coordinator.state.levels import check_level
from coordinator.state.limits import LimitsRecord
from coordinator.state.locks.contender import (
    Closing,
    ContenderRecord,
    Departure,
    EndedGrant,
    Ending,
    LocksCapture,
)
from coordinator.state.packing import next_row, pack, unpack_rows
from coordinator.state.remembered import (
    add_kept,
    rows_of_kept,
    total_bytes_of,
)
from coordinator.state.sessions import SessionRecord
from coordinator.state.shapes import (
    BOOL,
    BYTES,
    INT,
    MAYBE_INT,
    MAYBE_ROW,
    ROW,
    STR,
    Row,
    described,
    kind_number,
    kind_of_number,
    limit_values_of,
    rules_of,
    shape,
    texts_of,
)
from coordinator.state.znode import ZnodeRecord
from coordinator.state.znode_rows import rows_of, znodes_of

MAGIC: Final = "coordinator-snapshot"
PIECE_BYTES: Final = 64 * 1024
LONG_BYTES: Final = 256 * 1024
"""A piece that is longer, because one row is, is cut: a value may have 128 MiB, and the store takes
no piece of so many."""
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Capture:
    """The replicated state at one moment."""

    applied_index: int
    zxid: int
    limits: LimitsRecord
    sequence_floor: int
    least_sequence: int
    znodes: Mapping[str, ZnodeRecord]
    sessions: tuple[SessionRecord, ...]
    leaving: tuple[tuple[str, Departure], ...]
    """Sessions that have ended but still own znodes, and how they ended."""
    requests: RequestsCapture
    released: Collection[tuple[str, int]]
    locks: LocksCapture
    access: AccessCapture
    revoked: tuple[tuple[Caller, Departure], ...]
    """Credentials that are gone, whose sessions are still to be ended."""
    holds: tuple[CaptureHold, ...] = ()
    """Keep the captured znodes and released grants unchanged."""


def encode_snapshot(capture: Capture) -> Iterator[bytes]:
    """Return an iterator over the snapshot in pieces of about ``PIECE_BYTES``, none of which is
    longer than ``LONG_BYTES`` and a digest."""
    digest = hashlib.sha256()
    piece = bytearray()
    for row in _rows(capture, capture.znodes.items(), capture.applied_index):
        piece += pack(row)
        if len(piece) >= PIECE_BYTES:
            for start in range(0, len(piece), LONG_BYTES):
                cut = bytes(piece[start : start + LONG_BYTES])
                digest.update(cut)
                yield cut
            piece.clear()
    digest.update(piece)
    yield bytes(piece) + digest.digest()


def digest_of(capture: Capture) -> str:
    """Return SHA-256 (hex) over the state in its defined order."""
    found = hashlib.sha256()
    locks = replace(
        capture.locks,
        contenders=sorted(capture.locks.contenders, key=attrgetter("path")),
        sizes=tuple(sorted(capture.locks.sizes)),
        closings=tuple(sorted(capture.locks.closings)),
    )
    capture = replace(capture, locks=locks)
    for row in _rows(capture, sorted(capture.znodes.items(), key=_path_of), 0):
        found.update(pack(row))
    return found.hexdigest()


def _path_of(item: tuple[str, ZnodeRecord]) -> str:
    return item[0]


def _rows(
    capture: Capture, znodes: Iterable[tuple[str, ZnodeRecord]], applied_index: int
) -> Iterator[Row]:
    requests, locks, access = capture.requests, capture.locks, capture.access
    yield (
        MAGIC, capture.limits.level, applied_index, capture.zxid, capture.sequence_floor,
        requests.dropped_index, len(capture.znodes), len(capture.sessions),
        len(requests.free), len(requests.bound), len(requests.ended), len(capture.released),
        len(locks.contenders), len(locks.sizes), len(locks.closings), len(locks.ended),
        locks.grant_count, len(capture.leaving), len(locks.ungranted), len(capture.revoked),
        len(access.roles), len(access.identities), capture.least_sequence,
    )  # fmt: skip
    limits = capture.limits
    yield (
        limits.version, limits.changed_by, limits.changed_ms, limits.limits.items(),
        limits.rules,
    )  # fmt: skip
    yield from rows_of(znodes)
    for session in capture.sessions:
        yield _session_row(session)
    for session_id, departure in capture.leaving:
        yield (session_id, departure.row())
    for caller, departure in capture.revoked:
        yield (tuple(caller), departure.row())
    for records in (requests.free, requests.bound):
        for client_id, record in records:
            yield (
                client_id, record.highest, record.forgotten, record.last_index,
                len(record.outcomes), record.owner,
            )  # fmt: skip
            yield from rows_of_kept(record.outcomes)
    yield from requests.ended
    yield from capture.released
    yield from _lock_rows(locks)
    yield (access.is_on, access.revision, access.zxid)
    for role in access.roles:
        yield role_row(role)
    for identity in access.identities:
        yield identity_row(identity)


def _session_row(session: SessionRecord) -> Row:
    caller = session.caller
    return (
        session.session_id, session.timeout_ms, session.label, session.opened_ms,
        session.bound_index, session.opened_zxid, session.address, session.client_id, session.by,
        None if caller == NOBODY else tuple(caller),
    )  # fmt: skip


def _lock_rows(locks: LocksCapture) -> Iterator[Row]:
    for contender in locks.contenders:
        yield _contender_row(contender)
    yield from locks.sizes
    for closing in locks.closings:
        yield tuple(closing)
    for ended in locks.ended:
        yield (
            _contender_row(ended.contender), ended.ended_zxid, ended.ended_ms,
            ended.departure.row(),
        )  # fmt: skip
    for directory in locks.ungranted:
        yield (directory,)


def _contender_row(contender: ContenderRecord) -> Row:
    path, number, czxid, kind, *values = contender.row()
    return (path, number, czxid, kind_number(kind), *values)


# --- decoding

_header_shape: Final = shape("snapshot header", STR, *(INT,) * 22)
_leaving_shape: Final = shape("session that is leaving", STR, ROW)
_limits_shape: Final = shape("limits", INT, STR, INT, ROW, ROW)
_session_shape: Final = shape("session", STR, INT, STR, INT, INT, INT, STR, STR, STR, MAYBE_ROW)
_client_shape: Final = shape("client", STR, INT, INT, INT, INT, STR)
_revoked_shape: Final = shape("credential that was revoked", ROW, ROW)
_access_shape: Final = shape("access rights", BOOL, INT, INT)
_pair_shape: Final = shape("pair", STR, INT)
_contender_shape: Final = shape(
    "contender", STR, INT, INT, INT, STR, BYTES, INT, STR, INT, INT, ROW, BYTES, MAYBE_INT,
    INT, INT, BOOL, STR, INT,
)  # fmt: skip
_closing_shape: Final = shape("lock-delay", STR, INT, INT)
_ended_shape: Final = shape("grant that ended", ROW, INT, INT, ROW)
_directory_shape: Final = shape("queue still to be granted", STR)
_departure_shape: Final = shape("departure", STR, INT, STR, STR, INT)


def decode_snapshot(pieces: Iterable[bytes]) -> Capture:
    """Read a snapshot, cut into pieces anywhere.

    Raises:
        ValueError: it is damaged, cut off, or of another format.
    """
    rows = unpack_rows(_verified(pieces))
    header = next(rows, ())
    if header[:1] != (MAGIC,) or type(header[1]) is not int:
        found = ", ".join([described(each) for each in header[:2]]) or "nothing"
        raise ValueError(f"snapshot: expected {MAGIC!r} and its level, found {found}")
    check_level(header[1])
    (
        _, _, applied_index, zxid, sequence_floor, dropped_index, znode_count, session_count,
        free_count, bound_count, ended_count, released_count, *lock_counts, leaving_count,
        ungranted_count, revoked_count, role_count, identity_count, least_sequence,
    ) = _header_shape(header)  # fmt: skip
    limits = _limits_of(next_row(rows), header[1])
    znodes = znodes_of(rows, znode_count)
    sessions = tuple([_session_of(next_row(rows)) for _ in range(session_count)])
    leaving = tuple([_leaving_of(next_row(rows)) for _ in range(leaving_count)])
    revoked = tuple([_revoked_of(next_row(rows)) for _ in range(revoked_count)])
    free = tuple([_client_of(rows) for _ in range(free_count)])
    bound = tuple([_client_of(rows) for _ in range(bound_count)])
    ended = tuple([_pair_of(next_row(rows)) for _ in range(ended_count)])
    released = tuple([_pair_of(next_row(rows)) for _ in range(released_count)])
    locks = _locks_of(rows, (*lock_counts, ungranted_count))
    access = _access_of(rows, role_count, identity_count)
    if next(rows, None) is not None:
        raise ValueError("snapshot: expected its end, found more rows")
    return Capture(
        applied_index=applied_index,
        zxid=zxid,
        limits=limits,
        sequence_floor=sequence_floor,
        least_sequence=least_sequence,
        znodes=znodes,
        sessions=sessions,
        leaving=leaving,
        requests=RequestsCapture(free, bound, ended, dropped_index),
        released=released,
        locks=locks,
        access=access,
        revoked=revoked,
    )


def _verified(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield everything before the digest at the end; raise ValueError there if it is wrong."""
    found = hashlib.sha256()
    held = b""
    for piece in pieces:
        held += piece
        if len(held) > _DIGEST_BYTES:
            passed, held = held[:-_DIGEST_BYTES], held[-_DIGEST_BYTES:]
            found.update(passed)
            yield passed
    if held != found.digest():
        raise ValueError("snapshot: its digest does not match; it is damaged or cut off")


def _limits_of(row: Row, level: int) -> LimitsRecord:
    version, changed_by, changed_ms, values, rules = _limits_shape(row)
    found = dict(limit_values_of(values))
    if any(name not in NAMES or value < 1 for name, value in found.items()):
        raise ValueError(f"snapshot: expected known limits of 1 or more, found {found}")
    # A limit that was not known then has its default: see ``limits``.
    return LimitsRecord(
        MachineLimits(**found), version, changed_by, changed_ms, rules_of(rules), level
    )


def _session_of(row: Row) -> SessionRecord:
    *plain, caller = _session_shape(row)
    values = (*plain, NOBODY if caller is None else caller_of(caller))
    return SessionRecord(*values)


def _revoked_of(row: Row) -> tuple[Caller, Departure]:
    caller, departure = _revoked_shape(row)
    return caller_of(caller), _departure_of(departure)


def _access_of(rows: Iterator[Row], role_count: int, identity_count: int) -> AccessCapture:
    is_on, revision, zxid = _access_shape(next_row(rows))
    roles = tuple([role_of(next_row(rows)) for _ in range(role_count)])
    identities = tuple([identity_of(next_row(rows)) for _ in range(identity_count)])
    return AccessCapture(is_on, revision, zxid, roles, identities)


def _leaving_of(row: Row) -> tuple[str, Departure]:
    session_id, departure = _leaving_shape(row)
    return session_id, _departure_of(departure)


def _departure_of(row: Row) -> Departure:
    how, *values = _departure_shape(row)
    return Departure(Ending(how), *values)


def _client_of(rows: Iterator[Row]) -> tuple[str, ClientRecord]:
    client_id, highest, forgotten, last_index, count, owner = _client_shape(next_row(rows))
    outcomes: dict[int, bytes] = {}
    while len(outcomes) < count:
        add_kept(outcomes, next_row(rows), count)
    return client_id, ClientRecord(
        highest, forgotten, last_index, outcomes, total_bytes_of(outcomes.values()), owner=owner
    )


def _pair_of(row: Row) -> tuple[str, int]:
    path, number = _pair_shape(row)
    return path, number


def _directory_of(row: Row) -> str:
    directory: str = _directory_shape(row)[0]
    return directory


def _locks_of(rows: Iterator[Row], counts: Row) -> LocksCapture:
    contender_count, size_count, closing_count, ended_count, grant_count, ungranted_count = counts
    return LocksCapture(
        tuple([_contender_of(next_row(rows)) for _ in range(contender_count)]),
        tuple([_pair_of(next_row(rows)) for _ in range(size_count)]),
        tuple([Closing(*_closing_shape(next_row(rows))) for _ in range(closing_count)]),
        tuple([_ended_of(next_row(rows)) for _ in range(ended_count)]),
        grant_count,
        tuple([_directory_of(next_row(rows)) for _ in range(ungranted_count)]),
    )


def _contender_of(row: Row) -> ContenderRecord:
    path, place, czxid, kind, *values = _contender_shape(row)
    texts_of(values[6])
    return ContenderRecord(path, place, czxid, kind_of_number(kind), *values)


def _ended_of(row: Row) -> EndedGrant:
    contender, ended_zxid, ended_ms, departure = _ended_shape(row)
    departed = _departure_of(departure)
    return EndedGrant(_contender_of(contender), ended_zxid, ended_ms, departed)
