"""Each public verb says which errors it raises."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import coordinator
from coordinator import errors, recipes
from coordinator.client import AsyncClient, Client, Session
from coordinator.client.locks import Acquired, LockQueue

KINDS = [
    AsyncClient, Client, Session, LockQueue, Acquired,
    recipes.Lock, recipes.ReentrantLock, recipes.RWLock, recipes.Semaphore, recipes.MultiLock,
    recipes.TreeLock, recipes.Election, recipes.Grant, recipes.Once, recipes.TokenBucket,
    recipes.Counter, recipes.Flag, recipes.Barrier, recipes.Latch, recipes.DoubleBarrier,
    recipes.Condition, recipes.Group, recipes.Membership, recipes.Partitioner,
    recipes.WorkQueue, recipes.Delivery, recipes.Pool, recipes.Borrowed, recipes.CachedValue,
    recipes.TreeCache, recipes.TokenChunk, recipes.ManualLock, recipes.Revoker, recipes.Job,
    recipes.Jobs, recipes.CommitLog, recipes.CommitSite, recipes.Configuration,
    recipes.RevokeRequest,
]  # fmt: skip
RAISE_NOTHING = {
    *("AsyncClient.call", "AsyncClient.retry_delay_ms", "AsyncClient.shared", "Client.call"),
    *("AsyncClient.time_left_ms", "LockQueue.begin_release", "LockQueue.end_release"),
    *("Session.keep_probing", "Session.note_end", "Session.on_change", "Session.remaining_safe_ms"),
    *("Session.close", "Session.fail"),
    *("Acquired.remaining_safe_ms", "Acquired.stop_watching", "LockQueue.clean_up"),
    "LockQueue.pause",
    *("Grant.keep_releasing", "Grant.loss", "Grant.remaining_safe_ms"),
    *("Grant.condition", "Lock.with_options"),
    *("AsyncClient.close", "AsyncClient.wait", "Client.close", "CachedValue.peek"),
    *("Configuration.watch", "TreeCache.changes", "TreeCache.close"),
    "RevokeRequest.remaining_ms",
}
"""What reads a clock, registers a callback, or ends without raising for what went wrong."""


VALUES = {
    recipes.CachedZnode, recipes.GroupMember, recipes.JobRun, recipes.Run, recipes.Snapshot,
    recipes.Transaction, recipes.SuccessionRequest, coordinator.RetryPolicy,
}  # fmt: skip
"""What verbs are given and return; their own functions compute, and ask nobody."""


def verbs() -> Iterator[tuple[str, Any]]:
    for kind in KINDS:
        for name, verb in inspect.getmembers(kind, inspect.isroutine):
            if not name.startswith("_") and f"{kind.__name__}.{name}" not in RAISE_NOTHING:
                yield f"{kind.__name__}.{name}", verb
    yield "exclusive", recipes.exclusive
    yield "execute_exclusive", recipes.execute_exclusive
    yield "run_exclusive", recipes.run_exclusive
    yield "connect", coordinator.connect


VERBS = list(verbs())


@pytest.mark.parametrize(("name", "verb"), VERBS, ids=[name for name, _ in VERBS])
def test_each_public_verb_lists_its_errors(name: str, verb: Any) -> None:
    """Below ``Raises:``, by classes of the error tree, or by the verb that lists them."""
    text = inspect.getdoc(verb) or ""
    _, heading, listed = text.partition("\nRaises:\n")

    assert heading, f"{name} lists no errors"
    named = re.findall(r"\b[A-Z]\w+Error\b", listed)
    assert named or "``" in listed, f"{name}: {listed}"
    for each in named:
        assert hasattr(errors, each), f"{name}: there is no {each}"


@pytest.mark.parametrize("name", sorted({*recipes.__all__, *coordinator.__all__}))
def test_every_exported_class_with_verbs_is_looked_at(name: str) -> None:
    """A new recipe enters the list, or is a value."""
    kind = getattr(recipes if name in recipes.__all__ else coordinator, name)
    if inspect.isclass(kind) and not issubclass(kind, BaseException):
        verbs_of_it = [
            each
            for each, _ in inspect.getmembers(kind, inspect.isfunction)
            if not each.startswith("_")
        ]

        assert not verbs_of_it or kind in KINDS or kind in VALUES, f"{name}: {verbs_of_it}"


def test_what_raises_nothing_is_there() -> None:
    """A verb that is renamed leaves the list."""
    kinds = {kind.__name__: kind for kind in KINDS}
    for each in RAISE_NOTHING:
        kind, _, name = each.partition(".")
        assert hasattr(kinds[kind], name), each
