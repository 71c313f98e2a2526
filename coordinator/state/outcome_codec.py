"""The codec of outcomes with their events, by the rules of ``codec``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from coordinator.model.events import Event, EventType
from coordinator.state.access.encoding import add_results
from coordinator.state.locks import encoding as queues
from coordinator.state.outcomes import (
    Abandoned,
    Checked,
    Created,
    DataSet,
    Deleted,
    Entered,
    GrantsFinished,
    GuardedDone,
    LimitsSet,
    MultiDone,
    Outcome,
    ReadDone,
    Reaped,
    Refusal,
    Released,
    SessionEnded,
    SessionFinished,
    SessionOpened,
    Stat,
)
from coordinator.state.packing import formatted, pack
from coordinator.state.shapes import (
    BOOL,
    BYTES,
    INT,
    MAP,
    MAYBE_INT,
    MAYBE_ROW,
    MAYBE_STR,
    ROW,
    STR,
    Family,
    Row,
    described,
    limit_changes_of,
    shape,
    texts_of,
)

OUTCOME_FORMAT: Final = 1

_EVENT_TYPES: Final = tuple(EventType)
_EVENT_NUMBER: Final = {kind: number for number, kind in enumerate(_EVENT_TYPES)}

_stat_values: Final[Callable[[Stat], Row]] = tuple
_stat_shape: Final = shape(
    "Stat", *(INT,) * 8, MAYBE_STR, INT, INT, STR, MAYBE_INT,
)  # fmt: skip


def decode_stat(row: Any) -> Stat:
    """Return the Stat of a row; raises ValueError."""
    return Stat(*_stat_shape(row))


_CREATED_TYPES: Final = (int, str, tuple)


def _results_of(rows: Row) -> tuple[Any, ...]:
    """Return the results of a multi. Neighbours that are equal in their Stat share it, and it is
    checked once: a snapshot may hold a hundred thousand that were created together."""
    found: list[Any] = []
    stat_row: Row = ()
    stat: Any = None
    for row in rows:
        if type(row) is not tuple or tuple(map(type, row)) != _CREATED_TYPES or row[0] != 1:
            found.append(_ZNODE_RESULTS.decode(row))
            continue
        if stat is None or row[2] != stat_row:
            stat_row, stat = row[2], decode_stat(row[2])
        found.append(Created(row[1], stat))
    return tuple(found)


_ZNODE_RESULTS: Final = Family()
_RESULTS: Final = Family()
for _family in (_ZNODE_RESULTS, _RESULTS):
    _family.add(
        1, Created, STR, ROW,
        encode=lambda each: (1, each.path, _stat_values(each.stat)),
        decode=lambda row: Created(row[1], decode_stat(row[2])),
    )  # fmt: skip
    _family.add(
        2, DataSet, STR, ROW,
        encode=lambda each: (2, each.path, _stat_values(each.stat)),
        decode=lambda row: DataSet(row[1], decode_stat(row[2])),
    )  # fmt: skip
    _family.add(3, Deleted, STR, INT)
    _family.add(4, Checked, STR)
_ZNODE_RESULTS.add(
    5, ReadDone, STR, BYTES, MAYBE_ROW,
    encode=lambda each: (
        5, each.path, each.data, None if each.stat is None else _stat_values(each.stat),
    ),
    decode=lambda row: ReadDone(
        row[1], row[2], None if row[3] is None else decode_stat(row[3])
    ),
)  # fmt: skip
_RESULTS.add(
    6, MultiDone, ROW,
    encode=lambda each: (6, _ZNODE_RESULTS.encode_all(each.results)),
    decode=lambda row: MultiDone(_results_of(row[1])),
)  # fmt: skip
_RESULTS.add(
    7, GuardedDone, BOOL, ROW,
    encode=lambda each: (7, each.is_then, _ZNODE_RESULTS.encode_all(each.results)),
    decode=lambda row: GuardedDone(row[1], _results_of(row[2])),
)  # fmt: skip
_RESULTS.add(8, SessionOpened, STR, INT)
_RESULTS.add(9, SessionEnded, STR, BOOL, BOOL)
_RESULTS.add(10, Released, STR, INT)
_RESULTS.add(11, Abandoned, MAYBE_STR)
_RESULTS.add(12, Reaped, BOOL)

_RESULTS.add(
    13, Entered, ROW, BOOL, INT, BOOL,
    encode=lambda each: (
        13, _ZNODE_RESULTS.encode_all(each.contenders), each.is_granted, each.position,
        each.is_entered,
    ),
    decode=lambda row: Entered(_all_created(row[1]), *row[2:]),
)  # fmt: skip
queues.add_results(_RESULTS)
_RESULTS.add(21, SessionFinished, STR, INT)
_RESULTS.add(22, GrantsFinished, INT)
_RESULTS.add(
    20, LimitsSet, INT, ROW, decode=lambda row: LimitsSet(row[1], limit_changes_of(row[2]))
)
add_results(_RESULTS)


def _all_created(rows: Row) -> tuple[Created, ...]:
    found = _ZNODE_RESULTS.decode_all(rows)
    for each in found:
        if type(each) is not Created:
            raise ValueError(f"expected a contender, found {type(each).__name__}")
    return found


_outcome_shape: Final = shape("outcome", INT, INT, MAYBE_ROW, MAYBE_ROW, ROW, BOOL, ROW)
_refusal_shape: Final = shape("refusal", STR, STR, MAP)
_event_shape: Final = shape("event", INT, STR, INT, INT, MAYBE_STR)
_FACTS: Final[frozenset[type]] = frozenset((str, int, bool, bytes, type(None)))


def _decode_refusal(row: Row) -> Refusal:
    code, message, facts = _refusal_shape(row)
    check_facts(facts)
    return Refusal(code, message, facts)


def check_facts(facts: Mapping[Any, Any]) -> None:
    """Facts are primitives, or rows of primitives, or rows of maps of primitives; raises ValueError
    for others."""
    for name, fact in facts.items():
        if type(name) is str and type(fact) in _FACTS:
            continue
        names: list[Any] = [name]
        plain: list[Any] = []
        for each in fact if type(fact) is tuple else (fact,):
            if type(each) is dict and type(fact) is tuple:
                names += each
                plain += each.values()
            else:
                plain.append(each)
        if {*map(type, names)} != {str} or not _FACTS.issuperset(map(type, plain)):
            raise ValueError(f"expected a plain fact, found {described(fact)}")


def _decode_event(row: Any) -> Event:
    number, path, version, czxid, owner = _event_shape(row)
    if not 0 <= number < len(_EVENT_TYPES):
        raise ValueError(f"expected an event type, found {number}")
    return Event(_EVENT_TYPES[number], path, version, czxid, owner)


def _encode_event(event: Event) -> Row:
    return (
        _EVENT_NUMBER[event.type], event.path, event.version, event.czxid, event.ephemeral_owner,
    )  # fmt: skip


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome with its events."""
    refusal = outcome.refusal
    return pack(
        (
            OUTCOME_FORMAT,
            outcome.zxid,
            None if outcome.result is None else _RESULTS.encode(outcome.result),
            None if refusal is None else (refusal.code, refusal.message, dict(refusal.fields)),
            tuple([_encode_event(each) for each in outcome.events]),
            outcome.is_repeat,
            outcome.granted,
        )
    )


def decode_outcome(data: bytes, *, is_bounded: bool = False) -> Outcome:
    """Decode an outcome; raises ValueError unless it is one, of a known format, nothing else."""
    _, zxid, result, refusal, events, is_repeat, granted = _outcome_shape(
        formatted(data, "outcome", OUTCOME_FORMAT, is_bounded=is_bounded)
    )
    if (result is None) == (refusal is None):
        raise ValueError("expected a result or a refusal, found both or none")
    return Outcome(
        zxid,
        None if result is None else _RESULTS.decode(result),
        None if refusal is None else _decode_refusal(refusal),
        tuple([_decode_event(each) for each in events]),
        is_repeat,
        texts_of(granted),
    )
