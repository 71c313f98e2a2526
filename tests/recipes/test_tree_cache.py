"""A tree cache is the tree at its zxid, always, and at most as old as it says; in any weather."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from bisect import bisect_right

import pytest

from coordinator import connect
from coordinator.client import Change, Client, Event, SetData
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    NoNodeError,
    QuotaExceededError,
    UnavailableError,
)
from coordinator.recipes import CachedZnode, TreeCache
from coordinator.recipes.trees.cached_tree import CacheChanges, CachedTree, Readers
from coordinator.service.base.replica import ALL_OUTCOMES
from coordinator.service.reads import subtree_reads
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.storm import Life, Storm, storm

seeds = pytest.mark.parametrize("seed", range(2))
Shown = dict[str, CachedZnode]


class Record:
    """What the subtree was at each zxid, and when; written down as the member applies its log."""

    interest = ALL_OUTCOMES

    def __init__(self, world: MemoryCluster, root: str) -> None:
        self._machine = world.member._replica.machine
        self._root = root
        self._zxids: list[int] = []
        self._trees: list[Shown] = []
        self._times: list[int] = []
        self._clock = world.clock
        self.on_restore()
        world.member._replica.add_listener(self)

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        if outcome.events and not outcome.is_repeat:
            self.on_restore()

    def on_restore(self) -> None:
        znodes, hold = self._machine._tree.capture_znodes()
        below = self._root if self._root == "/" else f"{self._root}/"
        self._trees.append(
            {
                path: CachedZnode(
                    path,
                    data=each.data,
                    version=each.version,
                    czxid=each.czxid,
                    mzxid=each.mzxid,
                    mtime_ms=each.ctime_ms if each.writes is None else each.writes.mtime_ms,
                    ephemeral_owner=each.ephemeral_owner,
                )
                for path, each in znodes.items()
                if path == self._root or path.startswith(below)
            }
        )
        del hold
        self._zxids.append(self._machine.zxid)
        self._times.append(self._clock.monotonic_ms())

    def at(self, zxid: int) -> Shown:
        """Return the tree as it was after the change ``zxid``."""
        return self._trees[bisect_right(self._zxids, zxid) - 1]

    def zxid_before(self, time_ms: float) -> int:
        """Return how far the cluster had come before this time."""
        at = bisect_right(self._times, time_ms - 1) - 1
        return self._zxids[at] if at >= 0 else 0

    def judge(self, cache: TreeCache, seen_zxid: int = 0) -> int:
        """Check that what the cache shows was so, is as new as it says, and no step back."""
        as_of = cache.as_of
        shown = {each.path: each for each in cache.walk()}
        assert shown == self.at(as_of.zxid), f"it never was so at {as_of.zxid}"
        assert as_of.zxid >= seen_zxid, "it went back"
        asked_ms = self._clock.monotonic_ms() - as_of.age_s * 1000
        assert as_of.zxid >= self.zxid_before(asked_ms), f"it is older than {as_of.age_s} s"
        for path, znode in shown.items():
            assert cache.get(path) == znode
            parent = path.rpartition("/")[0] or "/"
            if path != cache.path:
                assert path.rpartition("/")[2] in cache.children(parent)
        return as_of.zxid


async def _write(life: Life) -> None:
    """Create, change and delete at random, some of it together."""
    draw, client = life.random, life.client
    paths = [f"/app/{a}" for a in "abc"] + [f"/app/{a}/{b}" for a in "abc" for b in "xy"]
    path, other = draw.choice(paths), draw.choice(paths)
    data = f"{life.name} {draw.random()}".encode() * draw.choice([1, 1, 30])
    try:
        match draw.randrange(6):
            case 0 | 1:
                await client.create(path, data, parents="persistent")
            case 2:
                await client.set(path, data)
            case 3:
                await client.delete(path, recursive=draw.random() < 0.5)
            case 4:
                mode = draw.choice(["ephemeral", "persistent_sequential"])
                await client.create(f"{path}/n-", data, mode=mode)  # type: ignore[arg-type]
            case 5:
                await client.multi([SetData(path, data), SetData(other, data)])
        life.storm.met["written"] += 1
    except CoordinatorError:
        life.storm.met["refused"] += 1


def _forget(life: Life) -> None:
    """Let the member forget what a cache that was away would have to know."""
    member = life.storm.world.member
    if life.random.random() < 0.3:
        member._replica.restore(list(member._replica.snapshot()))
    else:
        member.watches._values.restart(member._replica.machine.zxid)


@seeds
def test_the_cache_is_the_tree_at_its_zxid_always(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is lost, late, cut off or forgotten: no state that never was, none that is older
    than said, no step back; and what is told of changes adds up to the same."""
    monkeypatch.setattr(subtree_reads, "PAGE_BYTES_MAX", 60)  # so that there are several pages
    records: list[Record] = []

    async def work(life: Life) -> None:
        met = life.storm.met
        if not records:
            records.append(Record(life.storm.world, "/app"))
        record = records[0]
        if life.number < 2:
            while not life.storm.is_over:
                await _write(life)
                if life.random.random() < 0.03:
                    _forget(life)
                await asyncio.sleep(life.random.random())
            return
        while True:
            try:
                await _followed(life, record)
                return
            except CoordinatorError as error:
                met[type(error).__name__] += 1
                if life.is_dead or isinstance(error, ClientClosedError):
                    return

    async def _followed(life: Life, record: Record) -> None:
        met, seen = life.storm.met, 0
        async with TreeCache(life.client, "/app", max_age=3) as cache:
            changes = cache.changes()
            told = {each.path: each for each in cache.walk()}
            while not life.storm.is_over:
                seen = record.judge(cache, seen)
                met["stale" if cache.as_of.is_stale else "fresh"] += 1
                update = await changes.next(timeout=life.random.random())
                if update is not None:
                    met["told"] += 1
                    for path, old, new in update.changes:
                        assert told.pop(path, None) == old
                        if new is not None:
                            told[path] = new
                    assert told == record.at(update.zxid)
                if life.random.random() < 0.2:  # a slow reader
                    await asyncio.sleep(life.random.random() * 10)
            await cache.sync(timeout=60)
            assert record.judge(cache, seen) == record._zxids[-1]
            met["reached the end"] += 1

    async def judge(_blown: Storm, _observer: object) -> None:
        pass

    met = storm(seed, work, judge=judge)
    met.check(written=20, told=20, fresh=50, stale=1)


@in_memory
async def test_a_change_costs_no_read(world: MemoryCluster) -> None:
    """A copy is read in one request; then the watch brings all, but for the question how old."""
    async with world.client() as writer, world.client(network := world.network()) as client:
        await writer.create("/app")
        for number in range(300):
            await writer.create(f"/app/{number}", b"x")
        async with TreeCache(client, "/app", max_age=3_600) as cache:
            sent = len(network.sent)
            for number in range(300):
                zxid = (await writer.set(f"/app/{number}", b"y")).stat.mzxid
                assert await cache.wait_for(zxid)
            assert {each.data for each in cache.walk()} == {b"", b"y"}
            assert len(network.sent) == sent
            assert sent <= 4


@in_memory
async def test_it_says_how_old_it_is_while_nothing_arrives(world: MemoryCluster) -> None:
    """Cut off, it shows what it has, older and older; mended, it is true again."""
    network = world.network()
    async with world.client() as writer, world.client(network, timeout=2) as client:
        await writer.create("/app", b"1")
        async with TreeCache(client, "/app", max_age=3) as cache:
            await asyncio.sleep(5)
            assert cache.as_of.age_s <= 2.5
            assert not cache.as_of.is_stale
            network.is_cut = True
            await writer.set("/app", b"2")
            await asyncio.sleep(20)

            assert cache.as_of.is_stale
            assert 18 <= cache.as_of.age_s <= 25
            shown = cache.get("/app")
            assert shown is not None
            assert shown.data == b"1"
            with pytest.raises(UnavailableError):
                await cache.sync(timeout=1)

            network.is_cut = False
            await cache.sync(timeout=60)
            shown = cache.get("/app")
            assert shown is not None
            assert shown.data == b"2"
            assert not cache.as_of.is_stale


@in_memory
async def test_a_bounded_cache_ends_rather_than_show_a_part(world: MemoryCluster) -> None:
    """At the beginning and later; every read raises why."""
    async with world.client() as client:
        await client.create("/app", bytes(2_000))
        async with TreeCache(client, "/app", bytes_max=5_000) as cache:
            await client.create("/app/a", bytes(1_000))
            with pytest.raises(QuotaExceededError):
                await cache.wait_for((await client.create("/app/b", bytes(1_000))).stat.czxid)
            for read in (lambda: cache.get("/app"), lambda: cache.as_of, cache.walk):
                with pytest.raises(QuotaExceededError):
                    read()
        with pytest.raises(QuotaExceededError):
            await TreeCache(client, "/app", bytes_max=3_000).start()


@in_memory
async def test_what_is_not_cached_is_refused_not_absent(world: MemoryCluster) -> None:
    """A path elsewhere, a cache that has not begun, and one that was closed."""
    async with world.client() as client:
        cache = TreeCache(client, "/app")
        with pytest.raises(UnavailableError):
            cache.get("/app")
        async with cache:
            assert cache.get("/app") is None
            assert cache.walk() == ()
            await cache.wait_for((await client.create("/app")).stat.czxid)
            assert cache.get("/app") is not None
            for path in ("/", "/apple", "/other"):
                with pytest.raises(BadArgumentsError):
                    cache.get(path)
        with pytest.raises(ClientClosedError):
            cache.get("/app")
        with pytest.raises(BadArgumentsError):
            TreeCache(client, "/app", max_age=0)


@in_memory
async def test_a_deleted_subtree_and_the_root_of_all(world: MemoryCluster) -> None:
    """The znode itself may come and go; "/" has everything."""
    async with world.client() as client, TreeCache(client, "/") as cache:
        for _ in range(2):
            await client.create("/app/a", b"1", parents="persistent")
            await client.delete("/app", recursive=True)
            await client.create("/app", b"2")
            await cache.sync()
            assert cache.children("/app") == ()
            assert "app" in cache.children("/")
            assert [each.path for each in cache.walk("/app")] == ["/app"]
            await client.delete("/app")
        with pytest.raises(NoNodeError):
            await client.get("/app")


def _event(kind: str, path: str, data: bytes | None) -> Event:
    return Event(kind, path=path, version=0, czxid=1, ephemeral_owner=None, data=data)  # type: ignore[arg-type]


@pytest.mark.parametrize("reads", ["two znodes", "all"])
def test_another_thread_never_sees_half_of_a_change(reads: str) -> None:
    """Two znodes that change together are equal in each walk, and no read is older than its
    zxid."""
    tree = CachedTree("/", 1, 10**6)
    tree.apply(Change(1, tuple(_event("NodeCreated", path, b"1") for path in ("/a", "/b"))))
    is_over, wrong = threading.Event(), list[object]()

    def read() -> None:
        while not is_over.is_set():
            zxid = tree.zxid
            pair = tree.znodes.get("/a"), tree.znodes.get("/b")
            first, second = [0 if each is None else each.mzxid for each in pair]
            if not zxid <= first <= second:
                wrong.append((zxid, pair))

    def walk() -> None:
        while not is_over.is_set():
            walked = [each.data for each in tree.walk("/") if each.path in ("/a", "/b")]
            if len(set(walked)) != 1 or len(walked) != 2:
                wrong.append(walked)

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    readers = [
        threading.Thread(target=each)
        for each in ((read, read) if reads == "two znodes" else (walk,))
    ]
    for each in readers:
        each.start()
    for zxid in range(2, 3_000):
        data = b"%d" % zxid
        events = [_event("NodeDataChanged", path, data) for path in ("/a", "/b")]
        if zxid % 3 == 0:
            events.append(_event("NodeCreated", "/c", data))
        if zxid % 3 == 1:
            events.append(_event("NodeDeleted", "/c", None))
        tree.apply(Change(zxid, tuple(events)))
    is_over.set()
    for each in readers:
        each.join()
    sys.setswitchinterval(before_s)

    assert not wrong, wrong[:3]


def test_changes_that_wait_are_told_as_one() -> None:
    """From what was told last to what is there: bounded, and what comes and goes is not told."""
    tree = CachedTree("/", 1, 10**6)
    changes: CacheChanges[Client] = _reader(Readers())
    for zxid in range(2, 100, 2):
        changes.note(tree.apply(Change(zxid, (_event("NodeCreated", f"/{zxid}", b"1"),))))
        changes.note(tree.apply(Change(zxid + 1, (_event("NodeDeleted", f"/{zxid}", None),))))
    assert changes._waiting == {}
    for zxid in range(100, 200):
        kind = "NodeCreated" if zxid == 100 else "NodeDataChanged"
        changes.note(tree.apply(Change(zxid, (_event(kind, "/a", b"%d" % zxid),))))

    (only,) = changes._waiting.values()
    assert only.old is None
    assert only.new is not None
    assert only.new.data == b"199"


@pytest.mark.check
def test_a_sync_client_has_the_same() -> None:
    """``with`` and ``for``, over the stream, the loop in a thread of its own."""
    with serving() as url, connect(url) as client:
        client.create("/app", b"0")
        with TreeCache(client, "/app") as cache:
            changes = cache.changes()
            shown = cache.get("/app")
            assert shown is not None
            assert shown.data == b"0"
            client.set("/app", b"1")
            for update in changes:
                assert [(each.path, each.new and each.new.data) for each in update.changes] == [
                    ("/app", b"1")
                ]
                break
            assert cache.sync() >= 2
            assert cache.as_of.age_s < 10
            changes.close()


def test_threads_that_begin_to_read_stop_no_cache() -> None:
    """A change is noted for the readers that there are, while threads add and drop others."""
    readers: Readers[Client] = Readers()
    kept = [_reader(readers) for _ in range(50)]
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            _reader(readers)

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(2_000):
            readers.note(())
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(before_s)
    gc.collect()
    assert len(readers) == len(kept) == 50


def _reader(readers: Readers[Client]) -> CacheChanges[Client]:
    return CacheChanges(None, None, readers)  # type: ignore[arg-type]


@in_memory
async def test_a_sync_ends_in_its_time(world: MemoryCluster) -> None:
    """Though the client would ask for longer."""
    network = world.network()
    async with world.client(network) as client, TreeCache(client, "/") as cache:
        assert await cache.sync(0) == cache.as_of.zxid
        network.is_cut = True
        began = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError, match="got no further in time"):
            await cache.sync(1)
        assert asyncio.get_running_loop().time() - began < 1.1
        network.is_cut = False
