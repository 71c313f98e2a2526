"""The arguments that ``Lock`` and everything made from it have in common, checked once."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Literal, TypedDict, get_args

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


@dataclass(frozen=True, slots=True)
class Options:
    """The checked arguments; ``wait_ms`` 0 tries once, None waits without end."""

    wait_ms: int | None
    when_unsure: WhenUnsure
    owner: str | None
    guards: tuple[Guard, ...]
    raise_on_acquire: bool
    _request: partial[AcquireRequest]
    _last: list[AcquireRequest] = field(default_factory=list, compare=False, repr=False)
    """What was asked for last: mostly the same again."""

    @classmethod
    def of(
        cls,
        client: AsyncClient | Client,
        *,
        kind: Kind = "exclusive",
        size: int | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        when_unsure: WhenUnsure = "stop",
        owner: str | None = None,
        lock_delay: float = 0.0,
        max_hold: float | None = None,
        purpose: Purpose | None = None,
        guards: Sequence[Guard] = (),
        raise_on_acquire: bool = True,
        waiver: str = "",
        label: str = "",
        trace_id: str = "",
    ) -> Options:
        """Return what these arguments mean; see ``Lock``.

        Raises:
            BadArgumentsError: one of them is out of its range, or they do not go together.
        """
        if when_unsure not in get_args(WhenUnsure):
            raise BadArgumentsError(
                f"when_unsure: expected stop or continue, found {when_unsure!r}"
            )
        _check_purpose(purpose, guards, waiver)
        if not isinstance(owner, str | None) or len(owner or "") > OWNER_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"owner: expected at most {OWNER_CHARACTERS_MAX} characters, found {owner!r}"
            )
        request = partial(
            AcquireRequest,
            label=label or client.core.settings.given_label,
            trace_id=trace_id,
            kind=kind,
            size=size,
            lock_delay_ms=_lock_delay_ms(lock_delay),
            max_hold_ms=_max_hold_ms(max_hold),
            when_unsure=when_unsure,
            purpose=purpose or "",
            guard=_named(guards, waiver),
        )
        checked = checked_guards(client, guards)
        return cls(wait_ms_of(timeout), when_unsure, owner, checked, raise_on_acquire, request)

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
    def guards_to_raise(self) -> tuple[Guard, ...]:
        """The guards to raise before the caller gets the grant."""
        return self.guards if self.raise_on_acquire else ()

    def owner_now(self) -> str:
        """Return the owner of an attempt that begins now: the one given, or the caller."""
        return current_owner() if self.owner is None else self.owner

    def request(self, owner: str | None = None) -> AcquireRequest:
        """Return what to ask for now, in the name of ``owner``; None is ``owner_now``."""
        if owner is None:
            owner = current_owner() if self.owner is None else self.owner
        last = self._last[0] if self._last else None
        if last is None or last.owner != owner or last.pid != os.getpid():
            host, pid = _this_process()
            last = self._request(owner=owner, host=host, pid=pid)
            self._last[:] = [last]
        return last

    def campaign(self, value: bytes) -> AcquireRequest:
        """Return what to ask of an election, which publishes ``value`` when won."""
        who = {name: self._request.keywords[name] for name in ("label", "trace_id")}
        host, pid = _this_process()
        return AcquireRequest(**who, value=value, host=host, pid=pid)


def _this_process() -> tuple[str, int]:
    """Return host and process id: what people see of a contender, beside its label."""
    pid = os.getpid()
    return _host_of(pid), pid


@cache
def _host_of(_pid: int) -> str:
    """Return the name of this host, asked once in each process."""
    return socket.gethostname()[:200]


def _check_purpose(purpose: Purpose | None, guards: Sequence[Guard], waiver: str) -> None:
    if purpose is not None and purpose not in get_args(Purpose):
        raise BadArgumentsError(f"purpose: expected efficiency or correctness, found {purpose!r}")
    if purpose == "correctness" and not guards and not waiver.strip():
        raise BadArgumentsError(
            "purpose: a lock alone cannot make writes correct, because its holder may be paused "
            "while the next one is granted; expected guards=[...] that refuse stale tokens "
            "(coordinator.guards), or waiver='why it is correct without', found neither"
        )
    if waiver and purpose != "correctness":
        raise BadArgumentsError(
            f"waiver: expected with purpose='correctness', which asks for it; found {purpose!r}"
        )


def _lock_delay_ms(lock_delay: float) -> int:
    if not is_seconds(lock_delay) or lock_delay > LOCK_DELAY_S_MAX:
        raise BadArgumentsError(
            f"lock_delay: expected seconds from 0 to {LOCK_DELAY_S_MAX:g}, found {lock_delay!r}"
        )
    return round(lock_delay * 1000)


def _max_hold_ms(max_hold: float | None) -> int:
    if max_hold is None:
        return 0
    if not is_seconds(max_hold) or not MAX_HOLD_S_MIN <= max_hold <= MAX_HOLD_S_MAX:
        raise BadArgumentsError(
            f"max_hold: expected seconds from {MAX_HOLD_S_MIN:g} to {MAX_HOLD_S_MAX:g}, or None; "
            f"found {max_hold!r}"
        )
    return round(max_hold * 1000)


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
