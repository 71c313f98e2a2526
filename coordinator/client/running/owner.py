"""The owner on whose behalf a lock is acquired: the asyncio task, or the thread, that asks.

A session may have many owners. The cluster distinguishes them by these names when it looks for
deadlocks: an owner that waits for what it holds itself never goes on, while two tasks of one
program that want the same lock do not.

1. No two owners have the same name: it contains a number that this process uses once. (Identifiers
   of tasks and threads are used again when these have ended.)
2. A sync call runs in the client's own loop, but its owner is the thread that called.
3. The words in a name are for people; only the number distinguishes owners.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from contextvars import Context, ContextVar, copy_context
from typing import Any

_NAME_CHARACTERS_MAX = 60

_numbers = itertools.count(1)
_tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
_threads = threading.local()
_caller: ContextVar[str] = ContextVar("coordinator_caller")


def current_owner() -> str:
    """Return the owner: the thread behind a sync call, else the running task.

    Outside both (a callback of the loop) it is the thread.
    """
    caller = _caller.get("")
    if caller:
        return caller
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return _of_this_thread() if task is None else _of_task(task)


def context_of_caller() -> Context:
    """Return a context in which ``current_owner`` is the thread that calls this."""
    context = copy_context()
    context.run(_caller.set, _of_this_thread())
    return context


def _of_task(task: asyncio.Task[Any]) -> str:
    name = _tasks.get(task)
    if name is None:
        name = _tasks[task] = _named("task", task.get_name())
    return name


def _of_this_thread() -> str:
    name: str | None = getattr(_threads, "owner", None)
    if name is None:
        name = _threads.owner = _named("thread", threading.current_thread().name)
    return name


def _named(kind: str, name: str) -> str:
    shown = "".join(each if each.isprintable() else "?" for each in name[:_NAME_CHARACTERS_MAX])
    return f"{kind} {shown} #{next(_numbers)}"
