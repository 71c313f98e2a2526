"""Recipes: what people build from znodes and sessions, one file each, over the public client.

``lock.Lock`` and ``election.Election`` are run by the server, ``tree_lock.TreeLock`` is the same
lock made by the client alone. ``reentrant_lock``, ``rw_lock``, ``semaphore`` and ``multi_lock`` are
the other kinds; ``exclusion`` runs a function under a lock, ``once`` once for each key;
``token_bucket`` is a shared rate.
The names below are loaded when they are first used. ``coordinator`` exports them too, for programs
that have a package ``recipes`` of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recipes.election import Election as Election
    from recipes.exclusion import exclusive as exclusive
    from recipes.exclusion import execute_exclusive as execute_exclusive
    from recipes.grant import Grant as Grant
    from recipes.grant import Held as Held
    from recipes.lock import Lock as Lock
    from recipes.multi_lock import MultiLock as MultiLock
    from recipes.once import Once as Once
    from recipes.options import FOREVER as FOREVER
    from recipes.reentrant_lock import ReentrantLock as ReentrantLock
    from recipes.rw_lock import RWLock as RWLock
    from recipes.semaphore import Semaphore as Semaphore
    from recipes.token_bucket import TokenBucket as TokenBucket
    from recipes.tree_lock import TreeLock as TreeLock

_HOMES = {
    "Election": "recipes.election",
    "exclusive": "recipes.exclusion",
    "execute_exclusive": "recipes.exclusion",
    "Grant": "recipes.grant",
    "Held": "recipes.grant",
    "FOREVER": "recipes.options",
    "Lock": "recipes.lock",
    "MultiLock": "recipes.multi_lock",
    "Once": "recipes.once",
    "ReentrantLock": "recipes.reentrant_lock",
    "RWLock": "recipes.rw_lock",
    "Semaphore": "recipes.semaphore",
    "TokenBucket": "recipes.token_bucket",
    "TreeLock": "recipes.tree_lock",
}


__all__ = [
    "Lock",
    "ReentrantLock",
    "RWLock",
    "Semaphore",
    "MultiLock",
    "TreeLock",
    "Election",
    "Grant",
    "Held",
    "FOREVER",
    "exclusive",
    "execute_exclusive",
    "Once",
    "TokenBucket",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'recipes' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
