"""Building blocks of recipes: a place in a queue, the grant, its loss.

A recipe is built from these names, those of ``coordinator.client`` and the errors of
``coordinator.errors``; ours (the package ``recipes``) use nothing else. The page docs/client.md
writes one, line by line. On asyncio, or inside ``both``::

    queue = client.core.lock_queue("printer")
    acquired = await queue.acquire(AcquireRequest(label="report 7"), wait_ms=10_000)
    try:
        ...                                    # while not acquired.is_lost
    finally:
        await queue.release(acquired.grant)
        acquired.stop_watching()

``LockQueue``
    ``acquire``, ``release``, ``note``, ``downgrade``, ``extend``, ``is_current``, ``clean_up``: one
    queue, or several as one, run by the server. It withdraws what an attempt leaves behind.
``AcquireRequest``
    Who asks, in whose name, for what kind of hold. Times are in ms.
``Acquired``
    The grant with its fencing token, the session that keeps it, and ``remaining_safe_ms``.
``GrantReply``
    A grant as the server answers it; each verb of ``LockQueue`` takes the one that it is about.
``GrantWatch``
    What heartbeats say of a session's grants (``session.grant_watch``): revoked, or how much is
    left of a bounded hold.
``current_owner``
    In whose name the caller acquires: its asyncio task, or the thread behind a sync call.
``refuse_path``
    Refuses a name that begins with a slash, as the members do.
``holder``
    Of names of znodes, the first that holds: the one decision of every queue.
``place_of``
    Where a contender is queued, and which one it watches.
``sequence_of``
    The number at the end of a contender's name.
``Contending``
    Base class of a lock: attributes of other libraries are answered with the line that works here.

The names are loaded when they are first used, as those of ``coordinator.client`` are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.client.locks.acquired import Acquired as Acquired
    from coordinator.client.locks.lock_queue import LockQueue as LockQueue
    from coordinator.client.running.owner import current_owner as current_owner
    from coordinator.client.sessions.grant_watch import GrantWatch as GrantWatch
    from coordinator.client.verbs.hints import Contending as Contending
    from coordinator.model.acquire import AcquireRequest as AcquireRequest
    from coordinator.model.grants import GrantReply as GrantReply
    from coordinator.model.names import refuse_path as refuse_path
    from coordinator.model.queue_order import holder as holder
    from coordinator.model.queue_order import place_of as place_of
    from coordinator.model.queue_order import sequence_of as sequence_of

_HOMES = {
    "LockQueue": "coordinator.client.locks.lock_queue",
    "AcquireRequest": "coordinator.model.acquire",
    "Acquired": "coordinator.client.locks.acquired",
    "GrantReply": "coordinator.model.grants",
    "GrantWatch": "coordinator.client.sessions.grant_watch",
    "current_owner": "coordinator.client.running.owner",
    "refuse_path": "coordinator.model.names",
    "holder": "coordinator.model.queue_order",
    "place_of": "coordinator.model.queue_order",
    "sequence_of": "coordinator.model.queue_order",
    "Contending": "coordinator.client.verbs.hints",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'coordinator.client.locks' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
