"""The arguments that ``Lock`` and everything made from it have in common, checked once."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypedDict, get_args

from coordinator.client import AsyncClient, Client
from coordinator.client.locks import AcquireRequest, current_owner
from coordinator.errors import BadArgumentsError
from coordinator.recipes.locks.grant import MAX_HOLD_S_MAX, MAX_HOLD_S_MIN
from coordinator.recipes.locks.raising import Guard, checked_guards
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, is_seconds, wait_ms_of

Kind = Literal["exclusive", "shared", "slot"]
WhenUnsure = Literal["stop", "continue"]
Purpose = Literal["efficiency", "correctness"]

LOCK_DELAY_S_MAX = 60.0
OWNER_CHARACTERS_MAX = 128
_TEXT_CHARACTERS_MAX = 200


class LockOptions(TypedDict, total=False):
    """The keyword arguments of ``Lock``, which describes them, for what is made from it."""

    timeout: Timeout
    when_unsure: WhenUnsure
    owner: str | None
    lock_delay: float
    max_hold: float | None
    purpose: Purpose | None
    guards: Sequence[Guard]
    raise_on_acquire: bool
    waiver: str
    label: str
    trace_id: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked arguments of ``Lock``, and the ``kind`` of hold; ``size`` is a semaphore's."""

    kind: Kind = "exclusive"
    size: int | None = None
    timeout: Timeout = DEFAULT_TIMEOUT_S
    when_unsure: WhenUnsure = "stop"
    owner: str | None = None
    lock_delay: float = 0.0
    max_hold: float | None = None
    purpose: Purpose | None = None
    guards: Sequence[Guard] = ()
    raise_on_acquire: bool = True
    waiver: str = ""
    label: str = ""
    trace_id: str = ""
    _last: list[AcquireRequest] = field(default_factory=list, compare=False, repr=False)
    """The last request: mostly the next one is the same."""

    @classmethod
    def of(cls, client: AsyncClient | Client, **given: Any) -> Options:
        """Return the options ``given`` by name, with what ``client`` says of the others.

        Raises:
            BadArgumentsError: one of them is out of its range, or they do not go together.
            TypeError: there is no option of such a name.
        """
        options = cls(**given)
        options._check()
        guards = checked_guards(client, options.guards)
        label = options.label or client.core.settings.given_label
        return replace(options, guards=guards, label=label)

    def wait(self, blocking: bool, timeout: Timeout | None) -> int | None:
        """Return how long one acquire waits, in ms; ``timeout`` None means this contender's own."""
        if not isinstance(blocking, bool):  # acquire(5) would wait, and not for 5 seconds
            raise BadArgumentsError(
                f"blocking: expected True or False, found {blocking!r}; how long to wait is said "
                f"by `acquire(timeout={blocking!r})`"
            )
        if not blocking:
            return 0
        return self.wait_ms if timeout is None else wait_ms_of(timeout)

    @property
    def wait_ms(self) -> int | None:
        """How long an acquire waits unless it says otherwise: 0 tries once, None without end."""
        return wait_ms_of(self.timeout)

    @property
    def guards_to_raise(self) -> Sequence[Guard]:
        """The guards to raise before the caller gets the grant."""
        return self.guards if self.raise_on_acquire else ()

    def owner_now(self) -> str:
        """Return the owner of an attempt that begins now: the one given, or the caller."""
        return current_owner() if self.owner is None else self.owner

    def request(self, owner: str | None = None) -> AcquireRequest:
        """Return what to ask for now, in the name of ``owner``; None is ``owner_now``."""
        if owner is None:
            owner = self.owner_now()
        last = self._last[0] if self._last else None
        if last is None or last.owner != owner or last.pid != os.getpid():
            host, pid = _this_process()
            last = AcquireRequest(
                owner=owner,
                host=host,
                pid=pid,
                label=self.label,
                trace_id=self.trace_id,
                kind=self.kind,
                size=self.size,
                lock_delay_ms=round(self.lock_delay * 1000),
                max_hold_ms=round((self.max_hold or 0) * 1000),
                when_unsure=self.when_unsure,
                purpose=self.purpose or "",
                guard=_named(self.guards, self.waiver),
            )
            self._last[:] = [last]
        return last

    def campaign(self, value: bytes) -> AcquireRequest:
        """Return what to ask of an election, which publishes ``value`` when won."""
        host, pid = _this_process()
        return AcquireRequest(
            label=self.label, trace_id=self.trace_id, value=value, host=host, pid=pid
        )

    def _check(self) -> None:
        for what, given, words in (
            ("when_unsure", self.when_unsure, get_args(WhenUnsure)),
            ("purpose", self.purpose, (*get_args(Purpose), None)),
        ):
            if given not in words:
                expected = " or ".join(each for each in words if each)
                raise BadArgumentsError(f"{what}: expected {expected}, found {given!r}")
        wait_ms_of(self.timeout)
        owner, delay, hold = self.owner, self.lock_delay, self.max_hold
        if not isinstance(owner, str | None) or len(owner or "") > OWNER_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"owner: expected at most {OWNER_CHARACTERS_MAX} characters, found {owner!r}"
            )
        if not is_seconds(delay) or delay > LOCK_DELAY_S_MAX:
            raise BadArgumentsError(
                f"lock_delay: expected seconds from 0 to {LOCK_DELAY_S_MAX:g}, found {delay!r}"
            )
        is_bound = is_seconds(hold) and MAX_HOLD_S_MIN <= (hold or 0) <= MAX_HOLD_S_MAX
        if hold is not None and not is_bound:
            raise BadArgumentsError(
                f"max_hold: expected seconds from {MAX_HOLD_S_MIN:g} to {MAX_HOLD_S_MAX:g}, or "
                f"None; found {hold!r}"
            )
        if self.purpose == "correctness" and not self.guards and not self.waiver.strip():
            raise BadArgumentsError(
                "purpose: a lock alone cannot make writes correct, because its holder may be "
                "paused while the next one is granted; expected guards=[...] that refuse stale "
                "tokens (coordinator.guards), or waiver='why it is correct without', found neither"
            )
        if self.waiver and self.purpose != "correctness":
            raise BadArgumentsError(
                f"waiver: expected with purpose='correctness', which asks for it; found "
                f"{self.purpose!r}"
            )


def _this_process() -> tuple[str, int]:
    """Return host and process id: what people see of a contender, beside its label."""
    pid = os.getpid()
    return _host_of(pid), pid


@cache
def _host_of(_pid: int) -> str:
    """Return the name of this host, asked once in each process."""
    return socket.gethostname()[:200]


def _named(guards: Sequence[Guard], waiver: str) -> str:
    """Return what people see of how the writes are kept correct."""
    named = []
    for guard in guards:
        resource = getattr(guard, "resource", None)
        kind = type(guard).__name__
        named.append(f"{kind} {resource}" if isinstance(resource, str) else kind)
    if waiver.strip():
        named.append(f"waived: {waiver.strip()}")
    return ", ".join(named)[:_TEXT_CHARACTERS_MAX]
