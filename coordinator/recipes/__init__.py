"""Recipes: what people build from znodes and sessions, one file each, over the public client.

``lock.Lock`` and ``election.Election`` are run by the server, ``tree_lock.TreeLock`` is the same
lock made by the client alone. ``reentrant_lock``, ``rw_lock``, ``semaphore`` and ``multi_lock`` are
the other kinds, ``manual_lock`` outlives its process; ``exclusion`` runs a function under a lock,
``once`` once for each key, ``job`` and ``once_per`` once in each interval, ``jobs`` lists them;
``token_bucket`` is a shared rate, ``counter`` a shared number. ``flag`` (and barrier),
``condition``, ``latch`` and ``double_barrier`` let programs wait for each other. ``group`` says
which programs are there, ``partitioner`` shares work among them,
``work_queue`` hands it out item by item. ``pool`` lends things, ``cached_value`` is read without
a request, ``tree_cache`` is a whole subtree that says how old it is, ``configuration`` changes many
values at once; ``commit_log`` does a transaction at several sites or at none.
The names below are loaded when they are first used. ``coordinator`` exports them too, for programs
that have a package ``recipes`` of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.recipes.cached_value import CachedValue as CachedValue
    from coordinator.recipes.commit_log import CommitLog as CommitLog
    from coordinator.recipes.commit_site import CommitSite as CommitSite
    from coordinator.recipes.condition import Condition as Condition
    from coordinator.recipes.configuration import Configuration as Configuration
    from coordinator.recipes.counter import Counter as Counter
    from coordinator.recipes.double_barrier import DoubleBarrier as DoubleBarrier
    from coordinator.recipes.election import Election as Election
    from coordinator.recipes.elections.succession import SuccessionRequest as SuccessionRequest
    from coordinator.recipes.exclusion import exclusive as exclusive
    from coordinator.recipes.exclusion import execute_exclusive as execute_exclusive
    from coordinator.recipes.exclusion import run_exclusive as run_exclusive
    from coordinator.recipes.flag import Barrier as Barrier
    from coordinator.recipes.flag import Flag as Flag
    from coordinator.recipes.group import Group as Group
    from coordinator.recipes.groups.members import GroupMember as GroupMember
    from coordinator.recipes.groups.membership import Membership as Membership
    from coordinator.recipes.job import Job as Job
    from coordinator.recipes.jobs.ledger import JobReply as JobReply
    from coordinator.recipes.jobs.ledger import JobRun as JobRun
    from coordinator.recipes.jobs.ledger import Run as Run
    from coordinator.recipes.jobs.listing import Jobs as Jobs
    from coordinator.recipes.jobs.listing import JobView as JobView
    from coordinator.recipes.latch import Latch as Latch
    from coordinator.recipes.lock import Lock as Lock
    from coordinator.recipes.locks.grant import Grant as Grant
    from coordinator.recipes.locks.grant import Held as Held
    from coordinator.recipes.locks.grant import Leadership as Leadership
    from coordinator.recipes.locks.requests import RevokeRequest as RevokeRequest
    from coordinator.recipes.manual_lock import ManualLock as ManualLock
    from coordinator.recipes.multi_lock import MultiLock as MultiLock
    from coordinator.recipes.once import Once as Once
    from coordinator.recipes.once_per import once_per as once_per
    from coordinator.recipes.partitioner import Owned as Owned
    from coordinator.recipes.partitioner import Partitioner as Partitioner
    from coordinator.recipes.pool import Borrowed as Borrowed
    from coordinator.recipes.pool import Pool as Pool
    from coordinator.recipes.reentrant_lock import ReentrantLock as ReentrantLock
    from coordinator.recipes.revoker import RevokeAnswer as RevokeAnswer
    from coordinator.recipes.revoker import Revoker as Revoker
    from coordinator.recipes.rw_lock import RWLock as RWLock
    from coordinator.recipes.semaphore import Semaphore as Semaphore
    from coordinator.recipes.sharing.commit_record import Transaction as Transaction
    from coordinator.recipes.sharing.configuration_snapshot import Snapshot as Snapshot
    from coordinator.recipes.sharing.delivery import Delivery as Delivery
    from coordinator.recipes.token_bucket import TokenBucket as TokenBucket
    from coordinator.recipes.token_bucket import TokenChunk as TokenChunk
    from coordinator.recipes.tree_cache import TreeCache as TreeCache
    from coordinator.recipes.tree_lock import TreeLock as TreeLock
    from coordinator.recipes.trees.cached_tree import CacheChange as CacheChange
    from coordinator.recipes.trees.cached_tree import CachedZnode as CachedZnode
    from coordinator.recipes.trees.cached_tree import CacheUpdate as CacheUpdate
    from coordinator.recipes.waits import FOREVER as FOREVER
    from coordinator.recipes.work_queue import WorkQueue as WorkQueue

_HOMES = {
    "lock": ("Lock",),
    "reentrant_lock": ("ReentrantLock",),
    "rw_lock": ("RWLock",),
    "semaphore": ("Semaphore",),
    "multi_lock": ("MultiLock",),
    "tree_lock": ("TreeLock",),
    "manual_lock": ("ManualLock",),
    "revoker": ("Revoker", "RevokeAnswer"),
    "locks.requests": ("RevokeRequest",),
    "election": ("Election",),
    "elections.succession": ("SuccessionRequest",),
    "locks.grant": ("Grant", "Leadership", "Held"),
    "waits": ("FOREVER",),
    "exclusion": ("exclusive", "execute_exclusive", "run_exclusive"),
    "once": ("Once",),
    "job": ("Job",),
    "once_per": ("once_per",),
    "jobs.ledger": ("Run", "JobReply", "JobRun"),
    "jobs.listing": ("Jobs", "JobView"),
    "token_bucket": ("TokenBucket", "TokenChunk"),
    "counter": ("Counter",),
    "flag": ("Flag", "Barrier"),
    "double_barrier": ("DoubleBarrier",),
    "latch": ("Latch",),
    "condition": ("Condition",),
    "group": ("Group",),
    "groups.members": ("GroupMember",),
    "groups.membership": ("Membership",),
    "partitioner": ("Partitioner", "Owned"),
    "work_queue": ("WorkQueue",),
    "sharing.delivery": ("Delivery",),
    "pool": ("Pool", "Borrowed"),
    "cached_value": ("CachedValue",),
    "tree_cache": ("TreeCache",),
    "trees.cached_tree": ("CachedZnode", "CacheChange", "CacheUpdate"),
    "configuration": ("Configuration",),
    "sharing.configuration_snapshot": ("Snapshot",),
    "commit_log": ("CommitLog",),
    "commit_site": ("CommitSite",),
    "sharing.commit_record": ("Transaction",),
}
_HOME_OF = {name: f"coordinator.recipes.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "Lock", "ReentrantLock", "RWLock", "Semaphore", "MultiLock", "TreeLock", "ManualLock",
    "Revoker", "RevokeAnswer", "RevokeRequest", "Election", "SuccessionRequest", "Grant",
    "Leadership", "Held",
    "FOREVER", "exclusive", "execute_exclusive", "run_exclusive", "Once", "Job", "once_per", "Run",
    "JobReply", "Jobs", "JobView", "JobRun", "TokenBucket", "TokenChunk", "Counter", "Flag",
    "Barrier", "DoubleBarrier", "Latch", "Condition", "Group", "GroupMember", "Membership",
    "Partitioner", "Owned", "WorkQueue", "Delivery", "Pool", "Borrowed", "CachedValue", "TreeCache",
    "CachedZnode", "CacheChange", "CacheUpdate", "Configuration", "Snapshot", "CommitLog",
    "CommitSite", "Transaction",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'recipes' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
