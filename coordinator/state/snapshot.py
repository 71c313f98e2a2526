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
from typing import Any, Final

from coordinator.model.access import NOBODY, Caller, Quota, Rule, Verb
from coordinator.model.limits import NAMES, MachineLimits
from coordinator.state.access.table import AccessCapture, IdentityRecord, RoleRecord, Token
from coordinator.state.capture_hold import CaptureHold
from coordinator.state.commands import Kind
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
from coordinator.state.packing import Row, described, next_row, pack, row_reader, unpack_rows
from coordinator.state.remembered import (
    add_kept,
    rows_of_kept,
    total_bytes_of,
)
from coordinator.state.sessions import SessionRecord
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
        yield role.row()
    for identity in access.identities:
        yield identity.row()


def _session_row(session: SessionRecord) -> Row:
    caller = session.caller
    return (
        session.session_id, session.timeout_ms, session.label, session.opened_ms,
        session.bound_index, session.opened_zxid, session.address, session.client_id, session.by,
        None if caller == NOBODY else tuple(caller),
    )  # fmt: skip


def _lock_rows(locks: LocksCapture) -> Iterator[Row]:
    for contender in locks.contenders:
        yield contender.row()
    yield from locks.sizes
    for closing in locks.closings:
        yield tuple(closing)
    for ended in locks.ended:
        departure = ended.departure.row()
        yield (ended.contender.row(), ended.ended_zxid, ended.ended_ms, departure)
    for directory in locks.ungranted:
        yield (directory,)


# --- decoding

_row: Any = tuple
_Pairs: Any = _row[_row[str, int], ...]
_Caller: Any = _row[str, str, int]
_Departure: Any = _row[Ending, int, str, str, int]
_Contender: Any = _row[
    str, int, int, Kind, str, bytes, int, str, int, int, _row[str, ...], bytes, int | None, int,
    int, bool, str, int,
]  # fmt: skip
_Token: Any = _row[str, bytes, int, str, int, int]
_OwnQuota: Any = _row[int | None, int | None, int | None, int | None]

_header_of: Final = row_reader("header", _row[(str, *(int,) * 22)])
_limits_row: Final = row_reader(
    "row of limits", _row[int, str, int, _Pairs, _row[_row[str, str], ...]]
)
_session_row_of: Final = row_reader(
    "session", _row[str, int, str, int, int, int, str, str, str, _Caller | None]
)
_leaving_row: Final = row_reader("session that is leaving", _row[str, _Departure])
_revoked_row: Final = row_reader("credential that was revoked", _row[_Caller, _Departure])
_client_row: Final = row_reader("client", _row[str, int, int, int, int, str])
_pair_of: Final = row_reader("pair", _row[str, int])
_contender_row: Final = row_reader("contender", _Contender)
_closing_row: Final = row_reader("lock-delay", _row[str, int, int])
_ended_row: Final = row_reader("grant that ended", _row[_Contender, int, int, _Departure])
_directory_row: Final = row_reader("queue still to be granted", _row[str])
_access_row: Final = row_reader("row of access rights", _row[bool, int, int])
_role_row: Final = row_reader("role", _row[str, _row[_row[str, _row[Verb, ...]], ...]])
_identity_row: Final = row_reader(
    "identity", _row[str, int, _row[str, ...], _Pairs, _row[_Token, ...], _OwnQuota]
)


def decode_snapshot(pieces: Iterable[bytes]) -> Capture:
    """Read a snapshot, cut into pieces anywhere.

    Raises:
        ValueError: it is damaged, cut off, or of another format.
    """
    rows = unpack_rows(_verified(pieces))
    header = next(rows, ())
    if header[:1] != (MAGIC,) or tuple(map(type, header[1:2])) != (int,):
        found = ", ".join([described(each) for each in header[:2]]) or "nothing"
        raise ValueError(f"snapshot: expected {MAGIC!r} and its level, found {found}")
    check_level(header[1])
    (
        _, _, applied_index, zxid, sequence_floor, dropped_index, znode_count, session_count,
        free_count, bound_count, ended_count, released_count, *lock_counts, leaving_count,
        ungranted_count, revoked_count, role_count, identity_count, least_sequence,
    ) = _header_of(header)  # fmt: skip
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
    version, changed_by, changed_ms, values, rules = _limits_row(row)
    found = dict(values)
    if any(name not in NAMES or value < 1 for name, value in found.items()):
        raise ValueError(f"snapshot: expected known limits of 1 or more, found {found}")
    # A limit that was not known then has its default: see ``limits``.
    return LimitsRecord(MachineLimits(**found), version, changed_by, changed_ms, rules, level)


def _session_of(row: Row) -> SessionRecord:
    *plain, caller = _session_row_of(row)
    values = (*plain, NOBODY if caller is None else Caller(*caller))
    return SessionRecord(*values)


def _leaving_of(row: Row) -> tuple[str, Departure]:
    session_id, departure = _leaving_row(row)
    return session_id, Departure(*departure)


def _revoked_of(row: Row) -> tuple[Caller, Departure]:
    caller, departure = _revoked_row(row)
    return Caller(*caller), Departure(*departure)


def _client_of(rows: Iterator[Row]) -> tuple[str, ClientRecord]:
    client_id, highest, forgotten, last_index, count, owner = _client_row(next_row(rows))
    outcomes: dict[int, bytes] = {}
    while len(outcomes) < count:
        add_kept(outcomes, next_row(rows), count)
    return client_id, ClientRecord(
        highest, forgotten, last_index, outcomes, total_bytes_of(outcomes.values()), owner=owner
    )


def _locks_of(rows: Iterator[Row], counts: Row) -> LocksCapture:
    contender_count, size_count, closing_count, ended_count, grant_count, ungranted_count = counts
    return LocksCapture(
        tuple([ContenderRecord(*_contender_row(next_row(rows))) for _ in range(contender_count)]),
        tuple([_pair_of(next_row(rows)) for _ in range(size_count)]),
        tuple([Closing(*_closing_row(next_row(rows))) for _ in range(closing_count)]),
        tuple([_ended_of(next_row(rows)) for _ in range(ended_count)]),
        grant_count,
        tuple([_directory_row(next_row(rows))[0] for _ in range(ungranted_count)]),
    )


def _ended_of(row: Row) -> EndedGrant:
    contender, ended_zxid, ended_ms, departure = _ended_row(row)
    return EndedGrant(ContenderRecord(*contender), ended_zxid, ended_ms, Departure(*departure))


def _access_of(rows: Iterator[Row], role_count: int, identity_count: int) -> AccessCapture:
    is_on, revision, zxid = _access_row(next_row(rows))
    roles = tuple([_role_of(next_row(rows)) for _ in range(role_count)])
    identities = tuple([_identity_of(next_row(rows)) for _ in range(identity_count)])
    return AccessCapture(is_on, revision, zxid, roles, identities)


def _role_of(row: Row) -> RoleRecord:
    name, rules = _role_row(row)
    return RoleRecord(name, tuple([Rule(*each) for each in rules]))


def _identity_of(row: Row) -> IdentityRecord:
    name, created_zxid, roles, subjects, tokens, quota = _identity_row(row)
    kept = tuple([Token(token_id, name, *rest) for token_id, *rest in tokens])
    return IdentityRecord(name, created_zxid, roles, subjects, kept, Quota(*quota))
