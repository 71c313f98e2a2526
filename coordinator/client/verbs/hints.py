"""Hints for users of other libraries: what they type first, and the line that does it here.

kazoo, redis-py, python-etcd3 and ``threading`` have other names for what is here as well. A user
who types one of those gets the usual AttributeError, TypeError or ImportError, and in it the line
that works. Only names that mean something else here, or nothing, are in these tables; those of
clients, which are many, are in ``peer_names``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from coordinator.client.running.process import OfOneProcess
from coordinator.client.verbs.peer_names import OWN, WATCH, hint_for
from coordinator.errors import NoNodeError, QuotaExceededError
from coordinator.model.views import HOLD_LINE, LockView

F = TypeVar("F", bound=Callable[..., Any])

_CONNECT = '`client = connect("http://127.0.0.1:7071")` (from coordinator import connect)'

MISSING: Mapping[str, str] = {
    "create": "`client.create(path, data, parents='persistent')` makes the parents, too",
    "set": "`client.create(path, data)` makes a new znode; `set` only replaces its data",
    "get": "`client.exists(path)` returns None for a znode that is not there",
    "children": "`client.create(path, parents='persistent')` makes the path",
    "delete": "catch NoNodeError where it may be gone already",
}
"""What to type where a verb raises NoNodeError; kazoo's users expect ``ensure_path``, etcd's an
answer of None and a put that creates."""

IN_PARTS = (
    "delete it in parts, each child by itself: `for name in client.children(path).names: "
    "client.delete(f'{path}/{name}', recursive=True)`; one command deletes that many at most, so "
    "that no member stands still for it, and an administrator may raise the limit"
)
"""What to type where a recursive delete would take too many znodes."""

CONTENDER: Mapping[str, str] = {
    "locked": "`lock.grant` is what this object holds; `client.lock(name)` says who holds the lock",
    "owned": "`lock.grant` is what this object holds, None when nothing",
    "is_acquired": "`lock.grant` is what this object holds, None when nothing",
    "contenders": "`client.lock(name).queue`, `client.lock(name).holders`",
    "extend": "heartbeats keep the grant while its client lives; `grant.extend()` renews it now",
    "reacquire": "heartbeats keep the grant while its client lives; `grant.extend()` renews it now",
    "refresh": "heartbeats keep the grant while its client lives; `grant.extend()` renews it now",
    "lock": "`lock.acquire()`",
    "unlock": "`lock.release()`",
    "run": "`with election as leadership:` runs its body while elected",
    "is_leader": "`election.leadership` is what this candidate won, None when it is not elected",
    "fencing_token": "`grant.fencing_token`: acquire() and `with` return the grant",
}
"""Attributes of a lock, a semaphore or an election."""

PACKAGE: Mapping[str, str] = {
    "KazooClient": _CONNECT,
    "Redis": _CONNECT,
    "StrictRedis": _CONNECT,
    "Etcd3Client": _CONNECT,
    "Mutex": "`from coordinator import Lock`",
    "RLock": "`from coordinator import ReentrantLock`",
    "ReadWriteLock": "`from coordinator import RWLock`",
    "BoundedSemaphore": "`from coordinator import Semaphore`",
    "LeaderElection": "`from coordinator import Election`",
    "LeaderLatch": "`from coordinator import Election`",
    "Create": "`from coordinator.client import Create`",
    "SetData": "`from coordinator.client import SetData`",
    "Delete": "`from coordinator.client import Delete`",
    "Check": "`from coordinator.client import Check`",
}
"""Names to import."""

KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "connect": {
        "hosts": "`connect('http://127.0.0.1:7071,http://127.0.0.1:7072')`",
        "host": "`connect('http://127.0.0.1:7071')`",
        "port": "`connect('http://127.0.0.1:7071')`",
        "url": "`connect('http://127.0.0.1:7071')`",
        "ttl": "`connect(url, session_timeout=10)`",
    },
    "create": {
        "value": "`client.create(path, data)`",
        "ephemeral": "`client.create(path, data, mode='ephemeral')`",
        "sequence": "`client.create(path, data, mode='persistent_sequential')`",
        "makepath": "`client.create(path, data, parents='persistent')`",
        "ttl": "`client.create(path, data, mode='ttl', ttl_ms=60_000)`",
        "lease": OWN,
    },
    "set": {
        "value": "`client.set(path, data)`",
        "version": "`client.set(path, data, expected_version=version)`",
        "nx": "`client.create(path, data)`, which raises NodeExistsError",
        "ex": OWN,
        "px": OWN,
    },
    "get": {"watch": WATCH},
    "exists": {"watch": WATCH},
    "children": {"watch": "`with client.watch(path, kind='children') as changes:`"},
    "delete": {"version": "`client.delete(path, expected_version=version)`"},
    "lock": dict.fromkeys(("timeout", "ttl", "blocking", "blocking_timeout"), HOLD_LINE),
}
"""Keyword arguments, by what is called."""

_ALSO = {
    frozenset(("ephemeral", "sequence")): "mode='ephemeral_sequential'",
}


def missing(kind: str, item: object, name: str, line: str | None) -> AttributeError:
    """Return the error that ``item``, a ``kind``, has no attribute ``name``, with the ``line`` that
    works, if there is one."""
    message = f"{kind!r} object has no attribute {name!r}"
    return AttributeError(_with(message, line), name=name, obj=item)


def missing_verb(kind: str, client: object, name: str) -> AttributeError:
    """Return the error that a client has no attribute ``name``, with the line that works."""
    return missing(kind, client, name, None if name.startswith("_") else hint_for(name))


def line_to_import(name: str) -> str | None:
    """Return the line for what a program wants to import from ``coordinator``; None: unknown."""
    return PACKAGE.get(name) or (hint_for(name) if name[:1].isupper() else None)


class Contending(OfOneProcess):
    """Base of locks and elections: answers other libraries' attributes."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(type(self).__name__, self, name, CONTENDER.get(name))


def refuse_keywords(name: str, given: Mapping[str, object]) -> NoReturn:
    """Raise the TypeError for keyword arguments that ``name`` does not have."""
    table = KEYWORDS.get(name, {})
    lines = [table[each] for each in given if each in table]
    for words, line in _ALSO.items():
        if words <= given.keys():
            lines.append(f"together `{line}`")
    shown = ", ".join(map(repr, given))
    raise TypeError(
        _with(f"{name}() got an unexpected keyword argument: {shown}", "; ".join(lines))
    )


def add_hint(error: NoNodeError | QuotaExceededError, verb: str) -> None:
    """Note below the traceback what to type where a znode, or its parent, is missing.

    And where a subtree is too large for one command."""
    if isinstance(error, NoNodeError):
        hint = MISSING.get(verb)
    else:
        hint = IN_PARTS if error.fields.get("limit") == "recursive_delete_max" else None
    if hint is not None and not getattr(error, "__notes__", ()):
        error.add_note(f"hint: {hint}")


def answering(verb: F) -> F:
    """Let ``verb`` answer a keyword argument of another library with the line that works."""
    name = verb.__name__
    known = frozenset(inspect.signature(verb).parameters)

    def check(given: Mapping[str, object]) -> None:
        if not known.issuperset(given):
            refuse_keywords(name, {each: given[each] for each in given if each not in known})

    answered: Any
    if inspect.iscoroutinefunction(verb):

        @wraps(verb)
        async def answered(*args: Any, **given: Any) -> Any:
            if given:
                check(given)
            try:
                return await verb(*args, **given)
            except (NoNodeError, QuotaExceededError) as error:
                add_hint(error, name)
                raise

    else:

        @wraps(verb)
        def answered(*args: Any, **given: Any) -> Any:
            check(given)
            return verb(*args, **given)

    return answered  # type: ignore[no-any-return]


class LockQuestion(Coroutine[Any, Any, LockView]):
    """Awaited it says who holds the lock; ``async with`` is answered with how to hold it."""

    def __init__(self, asking: Coroutine[Any, Any, LockView]) -> None:
        self._asking = asking

    def send(self, value: Any) -> Any:
        """Go on with what was awaited, and return what is awaited next."""
        return self._asking.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where the question waits."""
        return self._asking.throw(*error)

    def close(self) -> None:
        """End the question."""
        self._asking.close()

    def __await__(self) -> Generator[Any, Any, LockView]:
        return self._asking.__await__()

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            self.close()
            raise TypeError(f"{HOLD_LINE}; with an AsyncClient it is `async with`")

        async def __aexit__(self, *_: object) -> None:
            """Nothing to leave: ``__aenter__`` always raises."""

        def __getattr__(self, name: str) -> NoReturn:
            if name in ("acquire", "release"):
                self.close()  # it will not be awaited
                raise missing("LockQuestion", self, name, HOLD_LINE)
            raise missing("LockQuestion", self, name, None)


def _with(message: str, line: str | None) -> str:
    return f"{message}; here it is {line}" if line else message
