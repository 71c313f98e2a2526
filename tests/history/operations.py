"""The recorded operation: what a client asked, when, what it was told, and when.

1. Times are integers of one clock or of one counter, the same for all clients of a history. Two
   operations that touch at one instant count as concurrent: give each event its own number
   (``Recorder`` does) where that would hide an order.
2. An operation without a return time has an unknown outcome. It may have taken effect at any time
   after its call, also after its client went on, or never.
3. An ``error`` in the output means: certainly without effect. The codes of indefinite errors are
   refused here, so that an unknown outcome cannot be recorded as a failure by mistake.

The file format is JSON lines: ``{"client": "c1", "key": "/a", "kind": "set", "input": {...},
"output": {...} | null, "call": 12, "return": 15 | null}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

INDEFINITE_ERRORS = frozenset(
    {"OutcomeUnknown", "ProposalTimeout", "LeaderChanged", "ConnectionLost", "RequestForgotten"}
)
_FIELDS = frozenset({"client", "key", "kind", "input", "output", "call", "return"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of one client. ``output`` and ``returned_at`` are None together: unknown."""

    client: str
    key: str
    kind: str
    input: Mapping[str, Any] = field(default_factory=dict)
    output: Mapping[str, Any] | None = None
    called_at: int = 0
    returned_at: int | None = None

    def __post_init__(self) -> None:
        if (self.output is None) != (self.returned_at is None):
            raise ValueError(f"output and return time belong together: {self}")
        if self.returned_at is not None and self.returned_at < self.called_at:
            raise ValueError(f"expected a return after the call: {self}")
        if self.error in INDEFINITE_ERRORS:
            raise ValueError(f"{self.error} is an unknown outcome, not a failure: {self}")

    @property
    def is_unknown(self) -> bool:
        return self.output is None

    @property
    def error(self) -> str | None:
        """The code of the definite error it was answered with, None if there was none."""
        return None if self.output is None else self.output.get("error")

    def as_unknown(self) -> Operation:
        """Return the same operation as if its answer had never arrived."""
        return replace(self, output=None, returned_at=None)

    def __str__(self) -> str:
        until = "..." if self.returned_at is None else self.returned_at
        asked = " ".join(f"{name}={value!r}" for name, value in self.input.items())
        told = (
            "unknown"
            if self.output is None
            else " ".join(f"{name}={value!r}" for name, value in self.output.items()) or "done"
        )
        return f"[{self.called_at}, {until}] {self.client} {self.kind} {asked} -> {told}"


class Recorder:
    """Collects operations while they happen; every event gets its own number, counted from 1.

    ``now`` gives times instead (of one clock for all clients); equal times are moved apart.
    """

    def __init__(self, now: Callable[[], int] | None = None) -> None:
        self._now = now
        self._last = 0
        self._operations: dict[int, Operation] = {}
        self._open: set[int] = set()

    def _stamp(self) -> int:
        now = self._last + 1 if self._now is None else self._now()
        self._last = max(self._last + 1, now)
        return self._last

    def call(self, client: str, key: str, kind: str, **input_: Any) -> int:
        """Record that ``client`` asks now; return the handle for its answer."""
        handle = self._stamp()
        self._operations[handle] = Operation(client, key, kind, input_, None, handle, None)
        self._open.add(handle)
        return handle

    def answered(self, handle: int, **output: Any) -> None:
        """Record a definite answer, a result or ``error=code``."""
        self._open.remove(handle)
        self._operations[handle] = replace(
            self._operations[handle], output=output, returned_at=self._stamp()
        )

    def unknown(self, handle: int) -> None:
        """Record that nobody will know: a timeout, a lost connection, an indefinite error."""
        self._open.remove(handle)

    def never_sent(self, handle: int) -> None:
        """Forget a request that certainly reached nobody."""
        self._open.remove(handle)
        del self._operations[handle]

    @property
    def open_count(self) -> int:
        return len(self._open)

    def history(self) -> list[Operation]:
        """Return what is recorded, by call; what is still open is unknown."""
        return list(self._operations.values())


def to_json(operation: Operation) -> str:
    """Return the operation as one line of JSON."""
    return json.dumps(
        {
            "client": operation.client,
            "key": operation.key,
            "kind": operation.kind,
            "input": dict(operation.input),
            "output": None if operation.output is None else dict(operation.output),
            "call": operation.called_at,
            "return": operation.returned_at,
        },
        ensure_ascii=False,
    )


def from_json(line: str) -> Operation:
    """Read one line; raises ValueError saying what was expected and found."""
    found = json.loads(line)
    if not isinstance(found, dict) or set(found) != _FIELDS:
        raise ValueError(f"expected an object with the fields {sorted(_FIELDS)}, found {line!r}")
    for name in ("client", "key", "kind"):
        if not isinstance(found[name], str):
            raise ValueError(f"{name}: expected text, found {found[name]!r}")
    for name, may_be_null in (("call", False), ("return", True)):
        is_fine = type(found[name]) is int or (may_be_null and found[name] is None)
        if not is_fine:
            raise ValueError(f"{name}: expected an integer, found {found[name]!r}")
    for name, may_be_null in (("input", False), ("output", True)):
        is_fine = isinstance(found[name], dict) or (may_be_null and found[name] is None)
        if not is_fine:
            raise ValueError(f"{name}: expected an object, found {found[name]!r}")
    return Operation(
        found["client"], found["key"], found["kind"], found["input"], found["output"],
        found["call"], found["return"],
    )  # fmt: skip


def write_history(path: Path, operations: Iterable[Operation]) -> None:
    """Write one operation a line."""
    with path.open("w", encoding="utf-8") as file:
        for operation in operations:
            file.write(to_json(operation) + "\n")


def read_history(path: Path) -> list[Operation]:
    """Read a file of one operation a line; raises ValueError naming file and line."""
    return list(_read_lines(path))


def _read_lines(path: Path) -> Iterator[Operation]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield from_json(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: {error}") from error
