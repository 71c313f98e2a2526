"""The chain of audit lines: how an event becomes a line, and whether lines are as written.

1. A line is one JSON object in ASCII. ``number`` counts lines from 1; ``previous`` is the SHA-256
   of the line before, without its line end. The first line has 64 zeros there.
2. So a line that is changed, removed, added or moved breaks the chain at that line or behind it.
   Lines cut off at the *end* break nothing, and who may write the file can make a whole new chain:
   against that, the number and hash of a line have to be kept elsewhere (``ChainHead``).
3. A line that a crash left torn is no part of the chain. It is kept, and the next line says so:
   its event is CONTINUED and its ``torn_sha256`` is of those bytes; of all of them, if that line
   was torn as well.
4. ``newest`` is the newest change that this log has a line of: its index in the Raft log, its
   zxid, the latest time of one, and how many changes of that index and zxid came before it;
   ``cluster_id`` is of which cluster. A member that replays its log knows by them what it need not
   write again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from coordinator.audit.event import FOLDED, REFUSED, AuditEvent, Source
from coordinator.model.tokens import without_tokens

LINE_BYTES_MAX = 16_384
LINE_BEGIN = b'{"number":'
GENESIS = "0" * 64
CONTINUED = "audit.continued"
_TEXT_MAX = 256
_RESOURCE_MAX = 1_024
_REFUSED_MAX = 128
"""The bytes of a text in the line of a refusal, as it is escaped: strangers choose it."""
_DETAILS_MAX = 32
_DEPTH_MAX = 2
_NO_LINE = "is no line of an audit log"
TORN_BYTES_MAX = 1 << 20
"""What crashes in a row left torn at the end of a file; a power loss leaves zeros there, too."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of a chain: the number of its last line, and that line's SHA-256."""

    number: int = 0
    digest: str = GENESIS

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest change that has a line: its place, and the latest time of a change with one.

    The place is its index, its zxid, and its ordinal: an index is that of an entry, which may hold
    several commands, and a change of limits has no zxid of its own."""

    index: int = 0
    zxid: int = 0
    time_ms: int = 0
    ordinal: int = 0
    cluster_id: str = ""
    """Of the cluster of that change; "" where it was not known."""

    def numbers(self) -> tuple[int, ...]:
        """Return what a line says of it."""
        return self.index, self.zxid, self.time_ms, self.ordinal

    def covers(self, event: AuditEvent) -> bool:
        """Whether there is a line of this change already.

        A cluster that begins again may count from 1 again; its id is another. Where an id is not
        known, its time goes on."""
        if event.source is not Source.APPLIED:
            return False
        if self.cluster_id and event.cluster_id:
            if self.cluster_id != event.cluster_id:
                return False
        elif event.time_ms > self.time_ms:
            return False
        place, newest = (event.index or 0, event.zxid or 0), (self.index, self.zxid)
        return (*place, event.ordinal) <= (*newest, self.ordinal)

    def with_line_of(self, event: AuditEvent) -> Newest:
        """Return what is newest once ``event`` has its line."""
        if event.source is not Source.APPLIED:
            return self
        place, newest = (event.index or 0, event.zxid or 0), (self.index, self.zxid)
        if place < newest and self.covers(event):
            return self
        return Newest(
            *place,
            max(self.time_ms, event.time_ms),
            event.ordinal,
            event.cluster_id or self.cluster_id,
        )


class Chain:
    """Makes lines, one behind the other."""

    def __init__(
        self,
        cluster: str,
        member_id: str,
        head: ChainHead | None = None,
        newest: Newest | None = None,
    ) -> None:
        self._cluster = cluster
        self._member_id = member_id
        self.head = head or ChainHead()
        self.newest = newest or Newest()

    def line(self, event: AuditEvent, left_out: int = 0) -> bytes:
        """Return the next line, with its line end; ``left_out`` events had none before it."""
        newest = self.newest.with_line_of(event)
        if event.event in (REFUSED, FOLDED):
            event = _narrowed(event)
        fields: dict[str, Any] = {
            "number": self.head.number + 1,
            "time": moment(event.time_ms),
            "cluster": self._cluster,
            "member": self._member_id,
            "event": event.event,
            "source": event.source.value,
            "identity": _short(event.identity),
            "credential": _short(event.credential),
            "address": _short(event.address),
            "verb": event.verb,
            "resource": _short(event.resource, _RESOURCE_MAX),
            "zxid": event.zxid,
            "index": event.index,
            "cluster_id": newest.cluster_id,
            "outcome": event.outcome,
            "code": event.code,
            "request": _short(event.request),
            "detail": _bounded(event.detail),
            "left_out": left_out,
            "newest": newest.numbers(),
            "previous": self.head.digest,
        }
        line = _encoded(fields)
        if len(line) > LINE_BYTES_MAX:
            fields["detail"] = {"shortened": True}
            line = _encoded(fields)
        self.head = ChainHead(fields["number"], sha256(line).hexdigest())
        self.newest = newest
        return line + b"\n"


def moment(time_ms: int) -> str:
    """Return a time as RFC 3339 says it, in UTC and milliseconds."""
    text = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def _narrowed(event: AuditEvent) -> AuditEvent:
    """Return a refusal with each text of its caller's cut short."""
    return replace(
        event,
        identity=_narrow(event.identity),
        credential=_narrow(event.credential),
        address=_narrow(event.address),
        resource=_narrow(event.resource),
        request=_narrow(event.request),
        detail={
            name: _narrow(each) if isinstance(each, str) else each
            for name, each in event.detail.items()
        },
    )


def _narrow(text: str) -> str:
    text = without_tokens(text)
    left, cut = _REFUSED_MAX - len("..."), 0
    while cut < len(text) and (left := left - _escaped_bytes(text[cut])) >= 0:
        cut += 1
    is_short = _escaped_bytes(text[: _REFUSED_MAX + 1]) <= _REFUSED_MAX
    return text if is_short else text[:cut] + "..."


def _escaped_bytes(text: str) -> int:
    return len(json.dumps(text)) - len('""')


def _short(text: str, characters_max: int = _TEXT_MAX) -> str:
    text = without_tokens(text)  # someone may take one for a path, a name or its id
    return text if len(text) <= characters_max else text[: characters_max - 3] + "..."


def _bounded(value: object, depth: int = 0) -> Any:
    """Return ``value`` as JSON can say it, with a bound on all that a caller chose."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth <= _DEPTH_MAX:
        items = list(value.items())
        shown = {_short(str(key)): _bounded(each, depth + 1) for key, each in items[:_DETAILS_MAX]}
        return shown | _more(items)
    if isinstance(value, list | tuple) and depth <= _DEPTH_MAX:
        return [_bounded(each, depth + 1) for each in value[:_DETAILS_MAX]] + list(_more(value))
    return _short(str(value))


def _more(items: Sequence[object]) -> dict[str, Any]:
    """Return what says how many items are not shown, nothing if all are."""
    left = len(items) - _DETAILS_MAX
    return {f"... and {left} more": ""} if left > 0 else {}


# --- lines that were written before


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """What the chain needs of a line that was read."""

    head: ChainHead
    previous: str
    event: str
    newest: Newest
    torn_sha256: str


def read_line(line: bytes) -> WrittenLine | None:
    """Return what a line (without its end) says; None if it is none of ours, or only a part."""
    if not 2 <= len(line) <= LINE_BYTES_MAX:
        return None
    try:
        fields = json.loads(line)
        number, previous, event = fields["number"], fields["previous"], fields["event"]
        index, zxid, time_ms, ordinal = fields["newest"]
        torn = fields["detail"].get("torn_sha256", "")
        cluster_id = fields.get("cluster_id", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if any(type(each) is not int for each in (number, index, zxid, time_ms, ordinal)):
        return None
    if not all(isinstance(each, str) for each in (previous, event, torn, cluster_id)):
        return None
    return WrittenLine(
        ChainHead(number, sha256(line).hexdigest()),
        previous,
        event,
        Newest(index, zxid, time_ms, ordinal, cluster_id),
        torn,
    )


@dataclass(frozen=True, slots=True)
class LinePlace:
    """A line of a file, for a message."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """What was found: how far the chain holds, and why it does not go on.

    ``begins_at`` is the number of the first line; ``torn`` counts lines that a crash left torn;
    ``has_known_head`` is whether the line that was asked for is in the chain. ``ends_torn``: the
    end is a part of a line; a member writes it now, or crashed and goes on at its next start.
    """

    lines: int = 0
    begins_at: int = 0
    head: ChainHead = ChainHead()
    torn: int = 0
    ends_torn: bool = False
    has_known_head: bool = False
    broken: str = ""
    where: LinePlace | None = None


def verify(
    lines: Iterable[tuple[LinePlace, bytes]], known: ChainHead | None = None
) -> ChainVerdict:
    """Follow the chain through ``lines`` (without their ends) to the first that breaks it.

    Args:
        known: the number and hash of a line that were kept elsewhere; it has to be in the chain.
    """
    verdict = ChainVerdict(has_known_head=known is not None and known.number == 0)
    torn = _Torn()
    for place, line in lines:
        found = read_line(line)
        if found is None:
            torn.add(place, line)
            continue
        if torn.count:
            if found.event != CONTINUED or found.torn_sha256 != torn.digest:
                return replace(verdict, broken=_NO_LINE, where=torn.where)
            torn, verdict = _Torn(), replace(verdict, torn=verdict.torn + torn.count)
        broken = _break(verdict, found)
        if not broken and known is not None and known.number == found.head.number:
            if known.digest != found.head.digest:
                broken = f"is not the line {known.number} that was noted elsewhere"
            verdict = replace(verdict, has_known_head=not broken)
        if broken:
            return replace(verdict, broken=broken, where=place)
        verdict = replace(
            verdict,
            lines=verdict.lines + 1,
            begins_at=verdict.begins_at or found.head.number,
            head=found.head,
        )
    if torn.size > TORN_BYTES_MAX:
        return replace(verdict, broken=_NO_LINE, where=torn.where)
    verdict = replace(verdict, ends_torn=torn.count > 0)
    if known is not None and not verdict.has_known_head:
        return replace(
            verdict, broken=f"ends before line {known.number}, which was noted elsewhere"
        )
    return verdict


class _Torn:
    """Lines behind one another that are none of the chain."""

    def __init__(self) -> None:
        self.count = self.size = 0
        self.where: LinePlace | None = None
        self._digest = sha256()

    def add(self, place: LinePlace, line: bytes) -> None:
        """Take one more of them."""
        self._digest.update(b"\n" + line if self.count else line)
        self.where = self.where or place
        self.count += 1
        self.size += len(line) + 1

    @property
    def digest(self) -> str:
        """The SHA-256 of all of them, as the next line says it."""
        return self._digest.hexdigest()


def _break(before: ChainVerdict, found: WrittenLine) -> str:
    """Return why ``found`` cannot follow what was read ``before``; "" if it can."""
    if not before.lines:
        is_first = found.head.number == 1
        return "" if is_first == (found.previous == GENESIS) else "names no line before it"
    if found.head.number != before.head.number + 1:
        return f"has the number {found.head.number}, expected {before.head.number + 1}"
    if found.previous != before.head.digest:
        return "does not follow the line before it: one of the two was changed"
    return ""


def lines_of(name: str, chunks: Iterable[bytes]) -> Iterator[tuple[LinePlace, bytes]]:
    """Iterate over the lines of a file in pieces; of one that no crash can leave, only its
    beginning."""
    number, rest = 1, b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield LinePlace(name, number), line
            number += 1
        rest = rest[: TORN_BYTES_MAX + 1]
    if rest:
        yield LinePlace(name, number), rest
