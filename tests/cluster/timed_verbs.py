"""The verbs that ask members, each with the time that it promises to end in and a call of it.

``VERBS`` has a row for each public verb of the client and of the recipes; ``public_verbs`` says
which there are. What a verb needs is made while all is well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from coordinator import recipes
from coordinator.client import AsyncClient, Check, Create, SetData, settled
from coordinator.client.calling.deadline import TRY_MS

T = 1.0
"""The timeout of the calls that are given one."""
CLIENT_S = 2.0
"""That of the client."""
TRY_S = TRY_MS / 1000

Make = Callable[[Any, str], Any]
"""Makes what the verb is of, for this client and name; may be awaited."""


@dataclass(frozen=True)
class Verb:
    """One row: the call, after ``make``, ends within ``promised_s`` and the margin."""

    promised_s: float
    make: Make
    call: Callable[[Any], Any]


def of(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Make:
    """Return what makes a recipe of this kind."""
    return lambda client, name: kind(client, name, *arguments, **options)


def after(make: Make, *steps: str, **arguments: Any) -> Make:
    """Return what makes it, then calls these verbs of what came before; the last has arguments."""

    async def made(client: Any, name: str) -> Any:
        item = await settled(make(client, name))
        for step in steps:
            item = await settled(getattr(item, step)(**(arguments if step == steps[-1] else {})))
        return item

    return made


def itself(make: Make, step: str, *arguments: Any, **options: Any) -> Make:
    """Return what makes it and calls one of its verbs."""

    async def made(client: Any, name: str) -> Any:
        item = await settled(make(client, name))
        await settled(getattr(item, step)(*arguments, **options))
        return item

    return made


async def _path(client: Any, name: str) -> Any:
    await settled(client.create(f"/{name}", b"0"))
    return client, f"/{name}"


async def _client(client: Any, name: str) -> Any:
    await settled(client.status())
    return client


async def _item(client: Any, name: str) -> Any:
    queue = recipes.WorkQueue(client, name)
    await settled(queue.put(b"x"))
    return await settled(queue.take(timeout=10))


async def _dead(client: Any, name: str) -> Any:
    await settled((await _item(client, name)).reject("bad"))
    queue = recipes.WorkQueue(client, name)
    return queue, (await settled(queue.dead()))[0].name


async def _cache(client: Any, name: str) -> Any:
    await settled(client.create(f"/{name}"))
    return await settled(itself(lambda *_: recipes.TreeCache(client, f"/{name}"), "start")(0, ""))


async def _by_hand(client: Any, name: str) -> Any:
    lock = recipes.ManualLock(client, name)
    return lock, (await settled(lock.acquire("by a test", by="a"))).fencing_token


async def _asked(client: Any, name: str) -> Any:
    await settled(recipes.Lock(client, name).acquire())
    return recipes.Revoker(client, name)


async def _transaction(client: Any, name: str) -> Any:
    log, site = recipes.CommitLog(client, name, timeout=T), recipes.CommitSite(client, name, "here")
    await settled(log.run("key", ["here"], 1, timeout=0.01))  # aborted: there was no vote
    return site, await settled(log.look("key"))


def _verb(name: str, make: Make, promised_s: float, call: Callable[[Any], Any]) -> None:
    VERBS[name] = Verb(promised_s, make, call)


VERBS: dict[str, Verb] = {}

for _name, _call in {
    "get": lambda it: it[0].get(it[1]),
    "set": lambda it: it[0].set(it[1], b"1"),
    "delete": lambda it: it[0].delete(it[1]),
    "exists": lambda it: it[0].exists(it[1]),
    "children": lambda it: it[0].children(it[1]),
    "subtree": lambda it: it[0].subtree(it[1]),
    "update": lambda it: it[0].update(it[1], lambda data: data + b"1"),
    "create": lambda it: it[0].create(f"{it[1]}/e", mode="ephemeral"),
    "multi": lambda it: it[0].multi([SetData(it[1], b"2")]),
    "guarded": lambda it: it[0].guarded([Check(it[1])], then=[Create(f"{it[1]}/g", b"")]),
}.items():
    _verb(f"AsyncClient.{_name}", _path, CLIENT_S, _call)
for _name, _call in {
    "session": lambda it: it.session(),
    "election": lambda it: it.election("none"),
    "why": lambda it: it.why("timed-none"),
    "diagnosis": lambda it: it.diagnosis(),
    "status": lambda it: it.status(),
    "members": lambda it: it.members(),
    "examination": lambda it: it.examination(),
    "backup_piece": lambda it: it.backup_piece(),
    "set_log_level": lambda it: it.set_log_level("info"),
    "upgrade_status": lambda it: it.upgrade_status(),
    "finish_upgrade": lambda it: it.finish_upgrade(),
    "limits": lambda it: it.limits(),
    "set_limits": lambda it: it.set_limits({}),
    "sessions": lambda it: it.sessions(),
    "access": lambda it: it.access(),
    "caller": lambda it: it.caller(),
    "roles": lambda it: it.roles(),
    "identities": lambda it: it.identities(),
    "can": lambda it: it.can("nobody", "read", "/"),
    "quota": lambda it: it.quota("nobody"),
    "quotas": lambda it: it.quotas(),
    "put_role": lambda it: it.put_role("timed", []),
    "drop_role": lambda it: it.drop_role("timed-none"),
    "put_identity": lambda it: it.put_identity("timed"),
    "drop_identity": lambda it: it.drop_identity("timed-none"),
    "set_quota": lambda it: it.set_quota("timed-none", {}),
    "add_token": lambda it: it.add_token("timed-none"),
    "drop_token": lambda it: it.drop_token("timed-none"),
    "grant": lambda it: it.grant("timed-none", "none"),
    "revoke": lambda it: it.revoke("timed-none", by="a", reason="b"),
    "resize": lambda it: it.resize("timed-none", 2),
    "proclaim": lambda it: it.proclaim("timed-none", "none", b""),
}.items():
    _verb(f"AsyncClient.{_name}", _client, CLIENT_S, _call)

for _kind, _make in {
    "Lock": of(recipes.Lock),
    "Semaphore": of(recipes.Semaphore, 1),
    "MultiLock": lambda client, name: recipes.MultiLock(client, name, f"{name}-2"),
    "TreeLock": of(recipes.TreeLock),
    "ReentrantLock": of(recipes.ReentrantLock),
}.items():
    _held = itself(_make, "acquire")
    _verb(f"{_kind}.acquire", _make, T, lambda it: it.acquire(timeout=T))
    _verb(f"{_kind}.acquire, held by another", _held, T, lambda it: it.acquire(timeout=T))
    _verb(f"{_kind}.acquire, a try", _make, TRY_S, lambda it: it.acquire(timeout=0))
    _verb(f"{_kind}.try_acquire", _make, TRY_S, lambda it: it.try_acquire())
    _verb(f"{_kind}.release", _held, CLIENT_S, lambda it: it.release())
_verb("Lock.acquire, half a second", of(recipes.Lock), 0.5, lambda it: it.acquire(timeout=0.5))
_verb("Lock.acquire, three", of(recipes.Lock), 3.0, lambda it: it.acquire(timeout=3))
_verb("Semaphore.resize", itself(of(recipes.Semaphore, 1), "acquire"), CLIENT_S,
      lambda it: it.resize(2))  # fmt: skip

_grant = after(of(recipes.Lock, max_hold=60), "acquire")
for _name, _call in {
    "verify": lambda it: it.verify(),
    "is_held": lambda it: it.is_held(),
    "extend": lambda it: it.extend(),
    "extend_by": lambda it: it.extend_by(5),
    "renew_to": lambda it: it.renew_to(50),
    "note": lambda it: it.note(b"x"),
    "release": lambda it: it.release(),
}.items():
    _verb(f"Grant.{_name}", _grant, CLIENT_S, _call)
_written = lambda client, name: recipes.RWLock(client, name).write()  # noqa: E731
_verb("Grant.downgrade", after(_written, "acquire"), CLIENT_S, lambda it: it.downgrade())

_election = itself(of(recipes.Election), "campaign")
_verb("Election.campaign", of(recipes.Election), T, lambda it: it.campaign(timeout=T))
for _name, _promised, _call in (
    ("resign", CLIENT_S, lambda it: it.resign()),
    ("proclaim", CLIENT_S, lambda it: it.proclaim(b"v")),
    ("who", CLIENT_S, lambda it: it.who()),
    ("hand_over", CLIENT_S, lambda it: it.hand_over("none")),
    ("ask", CLIENT_S, lambda it: it.ask("none")),
    ("asked", T, lambda it: it.asked(timeout=T)),
):
    _verb(f"Election.{_name}", _election, _promised, _call)

_once = lambda client, name: (recipes.Once(client, timeout=T), name)  # noqa: E731
_verb("Once.run", _once, T, lambda it: it[0].run(it[1], lambda attempt: 1))
_verb("Once.run, a try", lambda client, name: (recipes.Once(client, timeout=0), name), TRY_S,
      lambda it: it[0].run(it[1], lambda attempt: 1))  # fmt: skip
_verb("Once.look", _once, CLIENT_S, lambda it: it[0].look(it[1]))
_verb("Once.forget", _once, CLIENT_S, lambda it: it[0].forget(it[1]))
_verb("Once.settle", _once, CLIENT_S, lambda it: it[0].settle(it[1]))
_job = of(recipes.Job, every="1s", timeout=T)
_verb("Job.run", _job, T, lambda it: it.run(lambda run: 1))
_verb("Job.wait", _job, T, lambda it: it.wait(T))
_jobs = lambda client, name: recipes.Jobs(client)  # noqa: E731
_verb("Jobs.list", _jobs, CLIENT_S, lambda it: it.list())
_verb("Jobs.look", _jobs, CLIENT_S, lambda it: it.look("none"))
_verb("Jobs.forget", _jobs, CLIENT_S, lambda it: it.forget("none"))

_counter = itself(of(recipes.Counter), "add")
_verb("Counter.add", _counter, CLIENT_S, lambda it: it.add())
_verb("Counter.value", _counter, CLIENT_S, lambda it: it.value())
_verb("Counter.compare_and_set", _counter, CLIENT_S, lambda it: it.compare_and_set(1, 2))
_bucket = of(recipes.TokenBucket, rate=100, burst=5)
_verb("TokenBucket.take", _bucket, T, lambda it: it.take(timeout=T))
_verb("TokenBucket.available", _bucket, CLIENT_S, lambda it: it.available())
_chunk = lambda client, name: _bucket(client, name).chunk(5)  # noqa: E731
_verb("TokenChunk.take", _chunk, T, lambda it: it.take(timeout=T))
_verb("TokenChunk.give_back", itself(_chunk, "take"), CLIENT_S, lambda it: it.give_back())
_flag, _barrier = of(recipes.Flag), itself(of(recipes.Barrier), "close")
_verb("Flag.set", _flag, CLIENT_S, lambda it: it.set())
_verb("Flag.clear", _flag, CLIENT_S, lambda it: it.clear())
_verb("Flag.value", _flag, CLIENT_S, lambda it: it.value())
_verb("Flag.wait", _flag, T, lambda it: it.wait(T))
_verb("Barrier.close", _barrier, CLIENT_S, lambda it: it.close())
_verb("Barrier.open", _barrier, CLIENT_S, lambda it: it.open())
_verb("Barrier.wait", _barrier, T, lambda it: it.wait(T))
_condition = of(recipes.Condition)
_verb("Condition.notify", _condition, CLIENT_S, lambda it: it.notify())
_verb("Condition.last", _condition, CLIENT_S, lambda it: it.last())
_verb("Condition.wait", _condition, T, lambda it: it.wait(0, T))
_verb("Condition.wait_for", _condition, T, lambda it: it.wait_for(lambda: False, T))
_latch = of(recipes.Latch, 2)
_verb("Latch.count_down", _latch, CLIENT_S, lambda it: it.count_down())
_verb("Latch.left", _latch, CLIENT_S, lambda it: it.left())
_verb("Latch.wait", _latch, T, lambda it: it.wait(T))
_verb("Latch.reset", _latch, CLIENT_S, lambda it: it.reset())
_verb("DoubleBarrier.enter", of(recipes.DoubleBarrier, 2), T, lambda it: it.enter(T))
_verb("DoubleBarrier.leave", itself(of(recipes.DoubleBarrier, 1), "enter"), T,
      lambda it: it.leave(T))  # fmt: skip
_member = after(of(recipes.Group), "join", member="m")
_verb("Group.join", of(recipes.Group), T, lambda it: it.join("m", timeout=T))
_verb("Group.members", of(recipes.Group), CLIENT_S, lambda it: it.members())
_verb("Membership.update", _member, CLIENT_S, lambda it: it.update({"a": 1}))
_verb("Membership.report", _member, CLIENT_S, lambda it: it.report("down"))
_verb("Membership.drain", _member, 2 * CLIENT_S, lambda it: it.drain(linger=0))
_verb("Membership.leave", _member, CLIENT_S, lambda it: it.leave())
_verb("Partitioner.owners", of(recipes.Partitioner, 2), CLIENT_S, lambda it: it.owners())
_verb("Partitioner.stop", of(recipes.Partitioner, 2), CLIENT_S, lambda it: it.stop())

_queue = itself(of(recipes.WorkQueue), "put", b"x")
_empty = of(recipes.WorkQueue)
_verb("WorkQueue.put", _queue, CLIENT_S, lambda it: it.put(b"y"))
_verb("WorkQueue.take", _queue, T, lambda it: it.take(timeout=T))
_verb("WorkQueue.take, of none", _empty, T, lambda it: it.take(timeout=T))
_verb("WorkQueue.take, a try", _queue, TRY_S, lambda it: it.take())
_verb("WorkQueue.stats", _queue, CLIENT_S, lambda it: it.stats())
_verb("WorkQueue.dead", _queue, CLIENT_S, lambda it: it.dead())
_verb("WorkQueue.revive", _dead, CLIENT_S, lambda it: it[0].revive(it[1]))
_verb("Delivery.ack", _item, CLIENT_S, lambda it: it.ack())
_verb("Delivery.nack", _item, CLIENT_S, lambda it: it.nack("no"))
_verb("Delivery.reject", _item, CLIENT_S, lambda it: it.reject("no"))
_pool = of(recipes.Pool, ["a"])
_verb("Pool.borrow", _pool, T, lambda it: it.borrow(T))
_verb("Pool.borrowed", _pool, CLIENT_S, lambda it: it.borrowed())
_verb("Borrowed.give_back", after(_pool, "borrow"), CLIENT_S, lambda it: it.give_back())
_cached = of(recipes.CachedValue)
_verb("CachedValue.get", _cached, CLIENT_S, lambda it: it.get())
_verb("CachedValue.set", _cached, T, lambda it: it.set(b"1", T))
_verb("CachedValue.forget", itself(_cached, "get"), CLIENT_S, lambda it: it.forget())
_verb("TreeCache.start", lambda client, name: recipes.TreeCache(client, "/"), T,
      lambda it: it.start(T))  # fmt: skip
_verb("TreeCache.wait_for", _cache, T, lambda it: it.wait_for(1 << 60, T))
_verb("TreeCache.sync", _cache, T, lambda it: it.sync(T))
_verb("TreeCache.close", _cache, CLIENT_S, lambda it: it.close())
_configuration = itself(of(recipes.Configuration), "change", {"a": 1})
_verb("Configuration.get", _configuration, CLIENT_S, lambda it: it.get())
_verb("Configuration.change", _configuration, CLIENT_S, lambda it: it.change({"a": 2}))
_verb("Configuration.replace", _configuration, CLIENT_S, lambda it: it.replace({"a": 2}))
_verb("Configuration.rollback", _configuration, CLIENT_S, lambda it: it.rollback(1))
_verb("Configuration.history", _configuration, CLIENT_S, lambda it: it.history())

_manual = of(recipes.ManualLock)
_verb("ManualLock.acquire", _manual, T, lambda it: it.acquire("a test", by="a", timeout=T))
_verb("ManualLock.holder", _manual, CLIENT_S, lambda it: it.holder())
_verb("ManualLock.history", _manual, CLIENT_S, lambda it: it.history())
_verb("ManualLock.wait_released", _by_hand, T, lambda it: it[0].wait_released(T))
_verb("ManualLock.release", _by_hand, CLIENT_S, lambda it: it[0].release(it[1]))
_verb("ManualLock.extend_by", _by_hand, CLIENT_S, lambda it: it[0].extend_by(it[1], 5))
_verb("ManualLock.renew_to", _by_hand, CLIENT_S, lambda it: it[0].renew_to(it[1], 5))
_verb("Revoker.ask", _asked, CLIENT_S + T, lambda it: it.ask("a test", within=T))
_log = of(recipes.CommitLog, timeout=T)
_verb("CommitLog.run", _log, T + CLIENT_S, lambda it: it.run("k", ["here"], timeout=T))
_verb("CommitLog.recover", _log, T, lambda it: it.recover(T))
_verb("CommitLog.look", _log, CLIENT_S, lambda it: it.look("k"))
_verb("CommitLog.transactions", _log, CLIENT_S, lambda it: it.transactions())
_site = of(recipes.CommitSite, "here")
_verb("CommitSite.due", _site, T, lambda it: it.due(T))
_verb("CommitSite.write_off", _site, CLIENT_S, lambda it: it.write_off())
_verb("CommitSite.attend", _site, T, lambda it: it.attend(lambda _: True, lambda _: None, T))
_verb("CommitSite.prepare", _transaction, CLIENT_S, lambda it: it[0].prepare(it[1]))
_verb("CommitSite.vote", _transaction, CLIENT_S, lambda it: it[0].vote(it[1], True))
_verb("CommitSite.applied", _transaction, CLIENT_S, lambda it: it[0].applied(it[1]))
_verb("CommitSite.decision", _transaction, T, lambda it: it[0].decision(it[1], T))

ELSEWHERE = {
    "AsyncClient.close": "it is bounded by itself: two seconds",
    "AsyncClient.wait": "it asks no member",
    "AsyncClient.init_access": "it turns the rights on, for all rows",
    "AsyncClient.set_access": "the same",
    "Partitioner.run": "it runs as long as its program wants",
    "Membership.register": "inside Group.join",
    "Grant.give_back": "it is its release",
}
"""Public coroutines that have no row, and why."""


def public_verbs() -> Iterator[str]:
    """Name all verbs that ask members, by their kind."""
    for kind in (AsyncClient, *(getattr(recipes, name) for name in recipes.__all__)):
        if not inspect.isclass(kind):
            continue
        for name, _ in inspect.getmembers(kind, _asks_members):
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}"


def _asks_members(found: object) -> bool:
    inner = inspect.unwrap(found) if callable(found) else found
    return inspect.iscoroutinefunction(inner)

