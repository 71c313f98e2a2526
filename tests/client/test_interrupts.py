"""Interrupted threads of a Client: whatever they leave, the client's loop ends what they began.

A signal handler runs between any two steps of the main thread. So these tests raise at every such
place of the client's code, one after the other: as a function begins, and as one in C returns.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import AsyncClient, Change, Client, Event, SessionState, loop_thread
from coordinator.client.loop_thread import LoopThread
from coordinator.client.sessions.lease import Lease
from coordinator.errors import BadArgumentsError
from coordinator.recipes import FOREVER, Lock
from coordinator.recipes.locks.grant import Interrupting
from coordinator.recipes.locks.hold import Hold
from coordinator.recipes.trees.cached_tree import CachedTree
from tests.client.server_thread import serving
from tests.patience import patient

CODE = str(Path(loop_thread.__file__).parent)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[Client]:
    with connect(url) as other:
        yield other


class Interrupts:
    """Raises KeyboardInterrupt at the place with this number, counted from where ``begin`` runs.

    Without ``begin`` only ``count_from_here`` begins to count."""

    code: tuple[str, ...] = (CODE,)
    """Where it counts places."""

    def __init__(self, number: int, begin: Callable[..., object] | None = None) -> None:
        self._left = number
        self._begin = None if begin is None else begin.__code__  # type: ignore[attr-defined]
        self._has_begun = False
        self.was_raised = False

    def __enter__(self) -> Interrupts:
        if self._begin is not None:
            sys.setprofile(self._look)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> bool:
        sys.setprofile(None)
        return kind is KeyboardInterrupt

    def count_from_here(self) -> None:
        """Begin to count the places."""
        self._has_begun = True
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._has_begun:
            self._has_begun = frame.f_code is self._begin
            return
        is_place = event in ("call", "c_return") and frame.f_code.co_filename.startswith(self.code)
        if not is_place:
            return
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
            self.was_raised = True
            self.handle()

    def handle(self) -> None:
        """What the handler of the signal does."""
        raise KeyboardInterrupt


class Handled(Interrupts):
    """Calls ``handler`` there, and goes on; also at the places of what the recipes do."""

    code = (str(Path(CODE).parent), signal.__file__)

    def __init__(
        self, number: int, begin: Callable[..., object], handler: Callable[[], object]
    ) -> None:
        super().__init__(number, begin)
        self._handler = handler

    def handle(self) -> None:
        self._handler()


def expect_free(other: Client, name: str) -> None:
    """Fail if a grant of ``name`` stays."""
    lock = Lock(other, name, timeout=patient(10))
    lock.acquire()
    lock.release()


def test_an_acquire_that_is_interrupted_anywhere_leaves_no_grant(
    client: Client, other: Client
) -> None:
    """Before the loop knows of it, while it waits, and when the grant has come."""
    for number in count():
        name = f"acquire-{number}"
        lock = Lock(client, name, timeout=patient(10))
        with Interrupts(number, LoopThread.run) as interrupts:
            lock.acquire()
        if not interrupts.was_raised:
            break
        assert lock.grant is None
        expect_free(other, name)

    assert number > 10


def test_a_release_that_is_interrupted_anywhere_is_done(client: Client, other: Client) -> None:
    """Also if its call has not come to the loop: no other thread would do it."""
    for number in count():
        name = f"release-{number}"
        lock = Lock(client, name)
        lock.acquire()
        with Interrupts(number, LoopThread.run) as interrupts:
            lock.release()
        expect_free(other, name)
        if not interrupts.was_raised:
            break

    assert number > 10


def interrupt_as_it_waits(lock: Lock[Client], interrupts: Interrupts | None = None) -> None:
    """Interrupt an acquire that waits in the queue, and count the places of what follows."""
    wait, give_up = LoopThread._waited_for, LoopThread._give_up
    is_queued = threading.Event()

    with pytest.MonkeyPatch.context() as patches:

        def interrupted(thread: LoopThread, call: Any) -> Any:
            patches.setattr(LoopThread, "_waited_for", wait)
            assert thread._post(thread._start, call)
            assert is_queued.wait(patient(10))
            raise KeyboardInterrupt

        def again(thread: LoopThread, *rest: Any) -> None:
            if interrupts is not None:
                interrupts.count_from_here()
            give_up(thread, *rest)

        patches.setattr(LoopThread, "_waited_for", interrupted)
        patches.setattr(LoopThread, "_give_up", again)
        lock.acquire(on_position=lambda _: is_queued.set())


def test_an_acquire_that_is_interrupted_twice_leaves_nothing(client: Client, other: Client) -> None:
    """The second time comes anywhere in the clean-up of the first; the queue is left."""
    for number in count():
        name = f"twice-{number}"
        held = Lock(other, name)
        held.acquire()
        with Interrupts(number) as interrupts:
            interrupt_as_it_waits(Lock(client, name, timeout=FOREVER), interrupts)
        held.release()
        expect_free(other, name)
        if not interrupts.was_raised:
            break

    assert number > 3


def test_a_grant_that_comes_when_the_thread_has_gone_is_given_back(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop stood still for longer than an interrupted thread waits for its clean-up."""
    monkeypatch.setattr(loop_thread, "_CLEAN_UP_S_MAX", 0.01)
    may_go_on = threading.Event()
    held = Lock(other, "stands")
    held.acquire()
    give_up = LoopThread._give_up

    def stands(thread: LoopThread, *rest: Any) -> None:
        thread._loop.call_soon_threadsafe(may_go_on.wait)
        give_up(thread, *rest)

    monkeypatch.setattr(LoopThread, "_give_up", stands)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        interrupt_as_it_waits(Lock(client, "stands", timeout=FOREVER))
    held.release()
    may_go_on.set()

    assert "not ended yet" in interrupted.value.__notes__[0]
    expect_free(other, "stands")


def test_a_watch_gives_what_an_interrupted_step_has_read(client: Client, other: Client) -> None:
    """No change is lost and none comes twice, wherever the step is interrupted."""
    client.create("/read")
    with client.watch("/read") as changes:
        for number in count():
            before = changes.zxid
            written = other.set("/read", b"").stat.mzxid
            found = None
            with Interrupts(number, LoopThread.run) as interrupts:
                found = next(changes)
            if interrupts.was_raised:
                assert changes.zxid == before
                found = next(changes)
            assert found is not None
            assert found.zxid == changes.zxid == written
            if not interrupts.was_raised:
                break


def test_a_one_shot_watch_does_so_too(client: Client, other: Client) -> None:
    """Its only change is given by the next step."""
    client.create("/once")
    for number in count():
        changes = client.watch("/once", one_shot=True)
        written = other.set("/once", b"").stat.mzxid
        with Interrupts(number, LoopThread.run) as interrupts:
            assert next(changes).zxid == written
        left = [each.zxid for each in changes]
        assert left == ([written] if interrupts.was_raised else [])
        if not interrupts.was_raised:
            break


def test_an_interrupted_begin_of_a_watch_leaves_no_stream(client: Client) -> None:
    """It is closed, whether a member serves it already or not."""
    client.create("/begin")
    readers = client.core.delivery.readers
    for number in count():
        with Interrupts(number, LoopThread.run) as interrupts:
            changes = client.watch("/begin")
        if not interrupts.was_raised:
            break
        assert all(each._opening is None for each in readers)  # type: ignore[attr-defined]

    changes.close()
    assert number > 10


def client_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "coordinator client"}


def expect_no_threads_but(before: set[threading.Thread]) -> None:
    for thread in client_threads() - before:
        thread.join(patient(10))
    assert client_threads() == before


@pytest.mark.filterwarnings("ignore:coroutine '_awaited' was never awaited")
def test_a_client_whose_begin_is_interrupted_leaves_no_thread(url: str) -> None:
    """Wherever it is interrupted, ``close`` leaves nothing."""
    before = client_threads()
    for number in count():
        late = connect(url)
        with Interrupts(number, Client.open) as interrupts:
            late.open()
        late.close()
        expect_no_threads_but(before)
        if not interrupts.was_raised:
            break

    assert number > 20


def test_a_client_whose_end_is_interrupted_leaves_no_thread(url: str) -> None:
    """Its loop ends what was begun, though ``close`` is not called again."""
    before = client_threads()
    for number in count():
        late = connect(url).open()
        with Interrupts(number, LoopThread.stop) as interrupts:
            late.close()
        expect_no_threads_but(before)
        if not interrupts.was_raised:
            break

    assert number > 3


def test_a_signal_handler_cannot_use_a_client_that_it_interrupted_as_it_opens(url: str) -> None:
    """It is refused at once, and what it interrupted goes on."""
    refused: list[str] = []

    async def open_late() -> AsyncClient:
        return await connect(url)

    late = Client(open_late)
    run = LoopThread.run

    def with_a_signal(self: LoopThread, *rest: Any) -> Any:
        with pytest.MonkeyPatch.context() as undone:
            undone.setattr(LoopThread, "run", run)
            with pytest.raises(BadArgumentsError, match="signal handler") as refusal:
                late.get("/")
        refused.append(str(refusal.value))
        return run(self, *rest)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(LoopThread, "run", with_a_signal)
        late.open()

    assert len(refused) == 1
    assert late.get("/").path == "/"
    late.close()


def test_the_collector_waits_for_no_client_that_was_forgotten(url: str) -> None:
    """It may run in the loop of another client, whose heartbeats would stand still."""
    forgotten = connect(url).open()
    thread, may_go_on = forgotten._thread, threading.Event()
    assert thread is not None
    thread._loop.call_soon_threadsafe(may_go_on.wait)
    del forgotten

    gc.collect()  # would wait for the loop, which stands still

    assert thread._thread.is_alive()
    may_go_on.set()
    thread._thread.join(patient(10))
    assert not thread._thread.is_alive()


def test_a_question_holds_nothing_that_the_loop_needs(client: Client) -> None:
    """So a signal handler that comes in the middle of it may wait for the loop."""
    grant = Lock(client, "asked").acquire()
    session, stop = client.session(), grant.on_lost(lambda: None)
    loop, watch, paths = client.core.loop, session.grant_watch, ("/a", "/b")

    async def take_part() -> None:
        session._turn(session.state)
        watch.watch(paths, 1)
        watch.stop_watching(paths)
        session._end(SessionState.LOST, "by a test")

    def handler() -> None:
        asyncio.run_coroutine_threadsafe(take_part(), loop).result(patient(10))

    def asked() -> None:
        session.remaining_safe_ms()
        grant.remaining_safe_ms()
        stop()

    for number in count():
        session._ends.clear()
        session._lease = Lease(sent_ms=0, timeout_ms=1, margin_ms=1)  # is over
        with Handled(number, asked, handler) as interrupts:
            asked()
        if not interrupts.was_raised:
            break

    assert number > 2
    assert session.is_lost


def in_loop(client: Client, *steps: Callable[[], object]) -> Callable[[], None]:
    """Return a signal handler that lets the client's loop take these steps, and waits for them."""

    async def take() -> None:
        for each in steps:
            each()

    return lambda: asyncio.run_coroutine_threadsafe(take(), client.core.loop).result(patient(10))


@pytest.mark.parametrize("kind", ["on_lost", "on_end"])
def test_a_loss_in_the_middle_of_a_registration_is_reported_once(client: Client, kind: str) -> None:
    """Wherever a signal handler comes that waits for the loop in which the grant is lost."""
    register = getattr(Hold, kind)
    for number in count():
        hold = Lock(client, f"{kind}-{number}").acquire().hold
        called: list[int] = []
        with Handled(number, register, in_loop(client, partial(hold.lose, "test"))) as interrupts:
            register(hold, partial(called.append, number))
        in_loop(client, lambda: None)()  # what was posted before has run
        assert called == ([number] if interrupts.was_raised else [])
        if not interrupts.was_raised:
            break

    assert number > 0


def test_a_callback_is_stopped_in_the_middle_of_a_loss(client: Client) -> None:
    """It is called or not, and the loop is never waited for in vain."""
    for number in count():
        hold = Lock(client, f"stop-{number}").acquire().hold
        called: list[int] = []
        stop = hold.on_lost(partial(called.append, number))
        with Handled(number, stop, in_loop(client, partial(hold.lose, "test"))) as interrupts:
            stop()
        assert called in ([], [number])
        if not interrupts.was_raised:
            break

    assert number > 0


def test_the_end_of_an_interrupting_block_holds_nothing_that_the_loop_waits_for(
    client: Client,
) -> None:
    """The loop may have to send its signal just then."""
    grant = Lock(client, "interrupting").acquire()
    for number in count():
        block = grant.interrupting()
        with block, Handled(number, Interrupting.__exit__, in_loop(client, block._send)) as at:
            block.__exit__()
        if not at.was_raised:
            break

    assert number > 1


def change_of(zxid: int) -> Change:
    """Return the change that puts two new children of / in the place of those before."""

    def event(kind: str, path: str, data: bytes | None) -> Event:
        return Event(kind, path=path, version=0, czxid=1, ephemeral_owner=None, data=data)  # type: ignore[arg-type]

    gone = [event("NodeDeleted", f"/{each}{zxid - 1}", None) for each in "ab" if zxid > 1]
    return Change(zxid, (*gone, *[event("NodeCreated", f"/{each}{zxid}", b"") for each in "ab"]))


def test_a_read_of_a_cache_holds_nothing_that_its_next_change_needs(client: Client) -> None:
    """And is of one zxid, wherever a signal handler comes that waits for changes."""
    tree = CachedTree("/", 0, 10**6)
    zxids = count(1)
    change = in_loop(client, lambda: tree.apply(change_of(next(zxids))))
    change()
    for read in (tree.walk, tree.children):
        for number in count():
            before = tree.zxid
            with Handled(number, read, change) as interrupts:
                found = [getattr(each, "path", f"/{each}") for each in read("/")]
            assert found in [[f"/a{each}", f"/b{each}"] for each in (before, tree.zxid)]
            if not interrupts.was_raised:
                break
        assert number > 0
