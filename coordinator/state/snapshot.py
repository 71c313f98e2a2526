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
3. Formats 1 to 9 are still read. Format 9 has no least sequence number: it is 0. In format 8 each
   znode and each outcome has a row of its own. In format 7 outcomes are rows of rows; now they are
   as they are kept in memory. Format 6 has no extensions of holds. Format 5 has no quotas, and its
   znodes are nobody's. Format 4 has no access rights: they are off. Format 3 has no limits: the
   defaults hold (``limits``). Format 2 does not record whose request was repeated. Format 1 has no
   rows of locks (``locks`` is None). A member that restores such a snapshot and one that replays
   the same log may differ in the mark of a repeated request, and in nothing else.
4. Members with the same history write the same bytes. ``digest_of`` covers the header of now and
   the rows of format 8, with znodes and locks sorted by path and without the applied index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import NAMES, UNSET, MachineLimits
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
from coordinator.state.limits import LimitsRecord
from coordinator.state.locks.contender import (
    Closing,
    ContenderRecord,
    Departure,
    EndedGrant,
    Ending,
    LocksCapture,
)
from coordinator.state.outcome_codec import outcome_of
from coordinator.state.packing import next_row, pack, unpack_rows
from coordinator.state.remembered import (
    add_kept,
    check_kept,
    kept_of,
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
    MAYBE_STR,
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
from coordinator.state.znode_rows import row_of, rows_of, znodes_of

MAGIC: Final = "coordinator-state"
FORMAT: Final = 10
_DIGEST_FORMAT: Final = 8
_ACCESS_FORMAT: Final = 5
_QUOTAS_FORMAT: Final = 6
_KEPT_FORMAT: Final = 8
_RUNS_FORMAT: Final = 9
_LEAST_SEQUENCE_FORMAT: Final = 10
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
    locks: LocksCapture | None
    """None for format 1: the locks are derived from the znodes then."""
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
    znodes = rows_of(capture.znodes.items())
    for row in _rows(capture, znodes, FORMAT, capture.applied_index):
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
    assert capture.locks is not None, "a state of now has its locks"
    locks = replace(
        capture.locks,
        contenders=sorted(capture.locks.contenders, key=attrgetter("path")),
        sizes=tuple(sorted(capture.locks.sizes)),
        closings=tuple(sorted(capture.locks.closings)),
    )
    capture = replace(capture, locks=locks)
    znodes = map(row_of, sorted(capture.znodes.items(), key=_path_of))
    for row in _rows(capture, znodes, _DIGEST_FORMAT, 0):
        found.update(pack(row))
    return found.hexdigest()


def _path_of(item: tuple[str, ZnodeRecord]) -> str:
    return item[0]


def _rows(
    capture: Capture, znodes: Iterable[Row], number: int, applied_index: int
) -> Iterator[Row]:
    requests, locks, access = capture.requests, capture.locks, capture.access
    assert locks is not None, "a state of now has its locks"
    yield (
        MAGIC, number, applied_index, capture.zxid, capture.sequence_floor,
        requests.dropped_index, len(capture.znodes), len(capture.sessions),
        len(requests.free), len(requests.bound), len(requests.ended), len(capture.released),
        len(locks.contenders), len(locks.sizes), len(locks.closings), len(locks.ended),
        locks.grant_count, len(capture.leaving), len(locks.ungranted), len(capture.revoked),
        len(access.roles), len(access.identities), capture.least_sequence,
    )  # fmt: skip
    limits = capture.limits
    yield (
        limits.version, limits.changed_by, limits.changed_ms, limits.written(),
        limits.rules,
    )  # fmt: skip
    yield from znodes
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
            if number < _RUNS_FORMAT:
                yield from record.outcomes.items()
            else:
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

_former_header_shape: Final = shape("snapshot header", STR, *(INT,) * 21)
_header_shapes: Final = {
    1: shape("snapshot header", STR, *(INT,) * 11),
    2: shape("snapshot header", STR, *(INT,) * 16),
    3: shape("snapshot header", STR, *(INT,) * 16),
    4: shape("snapshot header", STR, *(INT,) * 18),
    5: _former_header_shape,
    6: _former_header_shape,
    7: _former_header_shape,
    8: _former_header_shape,
    9: _former_header_shape,
    FORMAT: shape("snapshot header", STR, *(INT,) * 22),
}
_leaving_shape: Final = shape("session that is leaving", STR, ROW)
_limits_shape: Final = shape("limits", INT, STR, INT, ROW, ROW)
_PLAIN_SESSION: Final = (STR, INT, STR, INT, INT, INT)
_session_shapes: Final = {
    6: shape("session", *_PLAIN_SESSION),
    9: shape("session", *_PLAIN_SESSION, STR, STR, STR),
}
"""By how many values a session had before format 5; one without an origin had fewer."""
_session_shape: Final = shape("session", *_PLAIN_SESSION, STR, STR, STR, MAYBE_ROW)
_former_client_shape: Final = shape("client", STR, INT, INT, INT, INT)
_client_shape: Final = shape("client", STR, INT, INT, INT, INT, STR)
_revoked_shape: Final = shape("credential that was revoked", ROW, ROW)
_access_shape: Final = shape("access rights", BOOL, INT, INT)
_former_remembered_shape: Final = shape("remembered outcome", INT, ROW)
_remembered_shape: Final = shape("remembered outcome", INT, BYTES)
_pair_shape: Final = shape("pair", STR, INT)
_CONTENDER_2: Final = (
    STR, INT, INT, INT, MAYBE_STR, BYTES, INT, STR, INT, INT, ROW, BYTES, MAYBE_INT, INT, INT,
)  # fmt: skip
_contender_shapes: Final = {
    2: shape("contender", *_CONTENDER_2),
    3: shape("contender", *_CONTENDER_2, BOOL),
    4: shape("contender", *_CONTENDER_2, BOOL),
    5: shape("contender", *_CONTENDER_2, BOOL),
    6: shape("contender", *_CONTENDER_2, BOOL, STR),
    7: shape("contender", *_CONTENDER_2, BOOL, STR, INT),
    8: shape("contender", *_CONTENDER_2, BOOL, STR, INT),
    9: shape("contender", *_CONTENDER_2, BOOL, STR, INT),
    FORMAT: shape("contender", *_CONTENDER_2, BOOL, STR, INT),
}
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
    found = header[:2]
    number = found[1] if len(found) == 2 and type(found[1]) is int else FORMAT
    header = _header_shapes.get(number, _any_header)(header)
    if header[0] != MAGIC or number not in _header_shapes:
        raise ValueError(
            f"snapshot: expected {MAGIC!r} of format 1 to {FORMAT}, "
            f"found {described(header[0])} of format {number}"
        )
    applied_index, zxid, sequence_floor, dropped_index = header[2:6]
    limits = LimitsRecord() if header[1] < 4 else _limits_of(next_row(rows))
    znodes = znodes_of(rows, header[6], header[1])
    sessions = tuple([_session_of(next_row(rows), header[1]) for _ in range(header[7])])
    leaving = (
        () if header[1] < 4 else tuple([_leaving_of(next_row(rows)) for _ in range(header[17])])
    )
    is_with_access = header[1] >= _ACCESS_FORMAT
    revoked_count = header[19] if is_with_access else 0
    revoked = tuple([_revoked_of(next_row(rows)) for _ in range(revoked_count)])
    free = tuple([_client_of(rows, header[1]) for _ in range(header[8])])
    bound = tuple([_client_of(rows, header[1]) for _ in range(header[9])])
    ended = tuple([_pair_of(next_row(rows)) for _ in range(header[10])])
    released = tuple([_pair_of(next_row(rows)) for _ in range(header[11])])
    ungranted_count = 0 if header[1] < 4 else header[18]
    counts = (*header[12:17], ungranted_count)
    locks = None if header[1] == 1 else _locks_of(rows, header[1], counts)
    access = _access_of(rows, header) if is_with_access else AccessCapture()
    if next(rows, None) is not None:
        raise ValueError("snapshot: expected its end, found more rows")
    return Capture(
        applied_index=applied_index,
        zxid=zxid,
        limits=limits,
        sequence_floor=sequence_floor,
        least_sequence=header[22] if header[1] >= _LEAST_SEQUENCE_FORMAT else 0,
        znodes=znodes,
        sessions=sessions,
        leaving=leaving,
        requests=RequestsCapture(free, bound, ended, dropped_index),
        released=released,
        locks=locks,
        access=access,
        revoked=revoked,
    )


def _any_header(row: Row) -> Row:
    """Return the header; one of an unknown format passes, so that the error can name it."""
    return row


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


def _limits_of(row: Row) -> LimitsRecord:
    version, changed_by, changed_ms, values, rules = _limits_shape(row)
    found = dict(limit_values_of(values))
    if any(name not in NAMES or value < 1 for name, value in found.items()):
        raise ValueError(f"snapshot: expected known limits of 1 or more, found {found}")
    # A limit that was not known then is as it always was: see ``limits``.
    return LimitsRecord(MachineLimits(**found), version, changed_by, changed_ms, rules_of(rules))


def _session_of(row: Row, number: int) -> SessionRecord:
    if number < _ACCESS_FORMAT:
        return SessionRecord(*(_session_shapes.get(len(row)) or _session_shapes[9])(row))
    values = _session_shape(row)
    caller = values[-1]
    session = SessionRecord(*values[:-1])
    return session if caller is None else replace(session, caller=caller_of(caller))


def _revoked_of(row: Row) -> tuple[Caller, Departure]:
    caller, departure = _revoked_shape(row)
    return caller_of(caller), _departure_of(departure)


def _access_of(rows: Iterator[Row], header: Row) -> AccessCapture:
    is_on, revision, zxid = _access_shape(next_row(rows))
    roles = tuple([role_of(next_row(rows)) for _ in range(header[20])])
    has_quota = header[1] >= _QUOTAS_FORMAT
    identities = tuple(
        [identity_of(next_row(rows), has_quota=has_quota) for _ in range(header[21])]
    )
    return AccessCapture(is_on, revision, zxid, roles, identities)


def _leaving_of(row: Row) -> tuple[str, Departure]:
    session_id, departure = _leaving_shape(row)
    return session_id, _departure_of(departure)


def _departure_of(row: Row) -> Departure:
    how, *values = _departure_shape(row)
    return Departure(Ending(how), *values)


def _client_of(rows: Iterator[Row], number: int) -> tuple[str, ClientRecord]:
    is_former = number < _ACCESS_FORMAT
    values = (_former_client_shape if is_former else _client_shape)(next_row(rows))
    client_id, highest, forgotten, last_index, count = values[:5]
    if number < 4:  # what fell out of the window was not written down as forgotten
        forgotten = max(forgotten, highest - UNSET.request_window)
    outcomes: dict[int, bytes] = {}
    while number >= _RUNS_FORMAT and len(outcomes) < count:
        add_kept(outcomes, next_row(rows), count)
    for _ in range(count if number < _RUNS_FORMAT else 0):
        if number < _KEPT_FORMAT:
            request_number, outcome = _former_remembered_shape(next_row(rows))
            outcomes[request_number] = kept_of(outcome_of(outcome, number))
        else:
            request_number, kept = _remembered_shape(next_row(rows))
            check_kept(kept)
            outcomes[request_number] = kept
    return client_id, ClientRecord(
        highest, forgotten, last_index, outcomes, total_bytes_of(outcomes.values()),
        owner="" if is_former else values[5],
    )  # fmt: skip


def _pair_of(row: Row) -> tuple[str, int]:
    path, number = _pair_shape(row)
    return path, number


def _directory_of(row: Row) -> str:
    directory: str = _directory_shape(row)[0]
    return directory


def _locks_of(rows: Iterator[Row], number: int, counts: Row) -> LocksCapture:
    contender_count, size_count, closing_count, ended_count, grant_count, ungranted_count = counts
    return LocksCapture(
        tuple([_contender_of(next_row(rows), number) for _ in range(contender_count)]),
        tuple([_pair_of(next_row(rows)) for _ in range(size_count)]),
        tuple([Closing(*_closing_shape(next_row(rows))) for _ in range(closing_count)]),
        tuple([_ended_of(next_row(rows), number) for _ in range(ended_count)]),
        grant_count,
        tuple([_directory_of(next_row(rows)) for _ in range(ungranted_count)]),
    )


def _contender_of(row: Row, number: int) -> ContenderRecord:
    path, place, czxid, kind, *values = _contender_shapes[number](row)
    texts_of(values[6])
    return ContenderRecord(path, place, czxid, kind_of_number(kind), *values)


def _ended_of(row: Row, number: int) -> EndedGrant:
    contender, ended_zxid, ended_ms, departure = _ended_shape(row)
    departed = _departure_of(departure)
    return EndedGrant(_contender_of(contender, number), ended_zxid, ended_ms, departed)
