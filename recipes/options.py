"""On which terms a contender stands: how long it waits and holds, in whose name, for what.

The arguments that ``Lock`` and everything made from it have in common, checked once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, get_args

from coordinator.client import AsyncClient, Client
from coordinator.client.locks.lock_queue import Wish
from coordinator.client.locks.owner import current_owner
from coordinator.errors import BadArgumentsError
from recipes.guards.raising import Guard, checked_guards
from recipes.waiting import (
    DEFAULT_TIMEOUT_S,
    Timeout,
    checked_blocking,
    is_seconds,
    wait_ms_of,
)

Kind = Literal["exclusive", "shared", "slot"]
WhenUnsure = Literal["stop", "continue"]
Purpose = Literal["efficiency", "correctness"]

LOCK_DELAY_S_MAX = 60.0
MAX_HOLD_S_MIN = 0.5
MAX_HOLD_S_MAX = 30 * 24 * 3_600.0
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
class Terms:
    """The checked arguments; ``wait_ms`` 0 tries once, None waits without end."""

    wait_ms: int | None
    when_unsure: WhenUnsure
    owner: str | None
    guards: tuple[Guard, ...]
    raise_on_acquire: bool
    _wish: Wish

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
    ) -> Terms:
        """Return the terms that these arguments mean; see ``Lock``.

        Raises:
            BadArgumentsError: one of them is out of its range, or they do not go together.
        """
        checked_when_unsure(when_unsure)
        _check_purpose(purpose, guards, waiver)
        if not isinstance(owner, str | None) or len(owner or "") > OWNER_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"owner: expected at most {OWNER_CHARACTERS_MAX} characters, found {owner!r}"
            )
        wish = replace(
            wish_of(label, trace_id),
            kind=kind,
            size=size,
            lock_delay_ms=_lock_delay_ms(lock_delay),
            max_hold_ms=_max_hold_ms(max_hold),
            when_unsure=when_unsure,
            purpose=purpose or "",
            guard=_named(guards, waiver),
        )
        checked = checked_guards(client, guards)
        return cls(wait_ms_of(timeout), when_unsure, owner, checked, raise_on_acquire, wish)

    def wait(self, blocking: bool, timeout: Timeout | None) -> int | None:
        """Return how long one acquire waits, in ms; ``timeout`` None means these terms' own."""
        checked_blocking(blocking)
        if timeout is None:
            return self.wait_ms if blocking else 0
        return wait_ms_of(timeout, blocking=blocking)

    def owner_now(self) -> str:
        """Return in whose name an attempt that begins now stands: its own, or the caller's."""
        return current_owner() if self.owner is None else self.owner

    def wish_of(self, owner: str) -> Wish:
        """Return what is asked for in the name of ``owner``."""
        return replace(self._wish, owner=owner)


def wish_of(label: str, trace_id: str, value: bytes | None = None) -> Wish:
    """Return who contends, with this host and process, for people to see."""
    return Wish(label, socket.gethostname()[:200], os.getpid(), trace_id, value)


def checked_when_unsure(when_unsure: WhenUnsure) -> WhenUnsure:
    """Return it if it is ``stop`` or ``continue``."""
    if when_unsure not in get_args(WhenUnsure):
        raise BadArgumentsError(f"when_unsure: expected stop or continue, found {when_unsure!r}")
    return when_unsure


def _check_purpose(purpose: Purpose | None, guards: Sequence[Guard], waiver: str) -> None:
    if purpose is not None and purpose not in get_args(Purpose):
        raise BadArgumentsError(f"purpose: expected efficiency or correctness, found {purpose!r}")
    if purpose == "correctness" and not guards and not waiver.strip():
        raise BadArgumentsError(
            "purpose: a lock alone can not make writes correct, because its holder may be paused "
            "while the next one is granted; expected guards=[...] that refuse stale tokens "
            "(recipes.guards), or waiver='why it is correct without', found neither"
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
