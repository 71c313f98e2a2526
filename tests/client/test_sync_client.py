"""The sync client: the same verbs, waiting; interrupts, forks, threads and forgotten clients."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator import connect
from coordinator.client import Check, Client, Create
from coordinator.errors import (
    BadArgumentsError,
    BadVersionError,
    ClientClosedError,
    CoordinatorError,
    LockLostError,
    LockTimeoutError,
    NodeExistsError,
    NoNodeError,
    TooManyRetriesError,
    UnavailableError,
)
from coordinator.recipes import (
    Election,
    Lock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    exclusive,
    execute_exclusive,
)
from coordinator.recipes.locks.grant import Grant
from tests.client.server_thread import serving
from tests.patience import patient


@pytest.fixture(params=["http", "stream"], autouse=True)
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_TRANSPORT", request.param)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test: they share the member."""
    return str(request.node.name)


def test_every_verb_waits_for_its_answer(client: Client, name: str) -> None:
    """The tree, as a program without an event loop sees it."""
    root = f"/{name}"
    created = client.create(root, b"one")
    assert (created.path, created.stat.version) == (root, 0)
    assert client.get(root).data == b"one"
    assert client.get(root, stale=True).data == b"one"
    assert client.set(root, b"\x00\xff", expected_version=0).stat.version == 1
    assert client.get(root).data == b"\x00\xff"
    first = client.create(f"{root}/item-", mode="persistent_sequential").path
    second = client.create(f"{root}/item-", mode="persistent_sequential").path
    listing = client.children(root, with_stat=True)
    assert [f"{root}/{each}" for each in listing.names] == [first, second]
    assert client.children(root, limit=1).next is not None
    stat = client.exists(root)
    assert stat is not None
    assert stat.num_children == 2
    assert client.exists(f"{root}/nothing") is None
    assert client.delete(root, recursive=True).deleted_count == 3
    with pytest.raises(NoNodeError):
        client.get(root)


def test_many_operations_in_one_write(client: Client, name: str) -> None:
    """All or nothing, and either one branch or the other."""
    a = f"/{name}"
    reply = client.multi([Create(a), Create(f"{a}/b", b"x")])
    assert [each.path for each in reply.results] == [a, f"{a}/b"]
    with pytest.raises(NodeExistsError) as refused:
        client.multi([Create(f"{a}/c"), Create(f"{a}/b")])
    assert refused.value.operation_index == 1
    assert client.exists(f"{a}/c") is None
    absent = [Check(f"{a}/d", exists=False)]
    assert client.guarded(absent, then=[Create(f"{a}/d")]).branch == "then"
    assert client.guarded(absent, then=[Create(f"{a}/d")]).branch == "otherwise"


def test_update_computes_in_the_callers_thread_and_survives_other_writers(
    client: Client, url: str, name: str
) -> None:
    """Read, compute, write if nobody wrote meanwhile, else again."""
    path = f"/{name}"
    client.create(path, b"0")
    threads: set[str] = set()

    def increment(data: bytes) -> bytes:
        threads.add(threading.current_thread().name)
        return str(int(data) + 1).encode()

    def work(_: int) -> None:
        for _ in range(5):
            client.update(path, increment, max_retries=100)

    with ThreadPoolExecutor(4, thread_name_prefix="caller") as pool:
        list(pool.map(work, range(4)))

    assert client.get(path).data == b"20"
    assert all(each.startswith("caller") for each in threads)


def test_update_gives_up_after_so_many_conflicts(client: Client, name: str) -> None:
    """After ``max_retries`` conflicts it says so, and changed nothing itself."""
    path = f"/{name}"
    client.create(path, b"0")
    tries = 0

    def disturbed(data: bytes) -> bytes:
        nonlocal tries
        tries += 1
        client.set(path, b"theirs")
        return b"mine"

    with pytest.raises(TooManyRetriesError) as raised:
        client.update(path, disturbed, max_retries=3)
    assert tries == 3
    assert isinstance(raised.value.__cause__, BadVersionError)
    assert client.get(path).data == b"theirs"


def test_with_holds_and_releases(client: Client, url: str, name: str) -> None:
    """The five lines of the README."""
    with Lock(client, name, timeout=10) as grant:
        grant.check()
        assert grant.fencing_token > 0
        assert grant.remaining_safe_ms() > 0
        assert grant.verify() > 0
        with connect(url) as other:
            with pytest.raises(LockTimeoutError), Lock(other, name, timeout=0):
                pytest.fail("the body ran without the lock")
            assert Lock(other, name).try_acquire() is None
            with pytest.raises(LockTimeoutError):
                Lock(other, name).acquire(blocking=False)
    lock = Lock(client, name)
    lock.acquire(timeout=1)
    try:
        pass
    finally:
        assert lock.release() is True


def test_several_locks_at_once(client: Client, name: str) -> None:
    """A MultiLock of a sync client acquires and releases all."""
    with MultiLock(client, f"{name}-b", f"{name}-a") as (b, a):
        assert (b.lock, a.lock) == (f"{name}-b", f"{name}-a")
        assert b.fencing_token == a.fencing_token  # one command entered both queues
    assert client.lock(f"{name}-a").holder is None
    assert client.lock(f"{name}-b").holder is None
    locks = MultiLock(client, f"{name}-a", f"{name}-b")
    assert [grant.lock for grant in locks.acquire(timeout=1)] == [f"{name}-a", f"{name}-b"]
    assert locks.release() is True
    assert locks.try_acquire() is not None
    assert locks.release() is True
    assert locks.release() is False


def test_the_other_kinds_of_locks_have_both_faces(client: Client, name: str) -> None:
    """Readers and writers, slots, counted: waited for, with the same promises."""
    with RWLock(client, name).write() as writing:
        writing.downgrade()
        assert writing.kind == "shared"
        writing.note(b"half")
    with RWLock(client, name).read() as reading:
        assert reading.previous is not None
        assert reading.previous.note == b"half"
    semaphore = Semaphore(client, f"{name}-slots", 1)
    with semaphore as slot:
        assert semaphore.resize(2) == 2
        assert semaphore.grant is slot
    assert semaphore.acquire(timeout=1).kind == "slot"
    assert semaphore.release() is True
    with ReentrantLock(client, name) as outer, ReentrantLock(client, name) as inner:
        assert outer.fencing_token == inner.fencing_token


def test_history_and_force_have_a_sync_face(client: Client, name: str) -> None:
    """What was, what became of it, and the end of what is stuck."""
    grant = Lock(client, name).acquire()
    revoked = client.revoke(name, by="ops", reason="stuck")
    told = list(client.grants(name))
    assert revoked.grant.grant_id == grant.grant_id
    assert [each.how for each in told] == ["forced"]
    assert client.grant(name, grant.grant_id).grant.by == "ops"


def test_a_recipe_of_the_other_face_is_refused_with_an_explanation(
    client: Client, name: str
) -> None:
    """``async with`` on a sync client's lock fails at once, not in some odd way later."""
    lock = Lock(client, name)

    with pytest.raises(BadArgumentsError, match="AsyncClient"):
        lock.__aenter__().send(None)  # type: ignore[misc]


def test_changes_are_iterated_in_order(client: Client, name: str) -> None:
    """A watch is a plain iterator, and resumes where another one ended."""
    path = f"/{name}"
    with client.watch(path, kind="subtree") as changes:
        client.create(path)
        client.set(path, b"x")
        client.create(f"{path}/child")
        told = [next(changes) for _ in range(3)]
    assert [each.events[0].type for each in told] == [
        "NodeCreated",
        "NodeDataChanged",
        "NodeCreated",
    ]
    assert changes.zxid == told[-1].zxid
    resumed = client.watch(path, kind="subtree", from_zxid=told[0].zxid, one_shot=True)
    assert [each.zxid for each in resumed] == [told[1].zxid]


def test_who_is_elected_can_be_asked_and_observed(client: Client, url: str, name: str) -> None:
    """Campaign, proclaim, observe, resign without an event loop."""
    with Election(client, name, value=b"first") as leadership, connect(url) as other:
        observing = Election(other, name)
        with observing.observe() as stream:
            elected = next(stream).elected
            assert elected is not None
            assert (elected.value, elected.fencing_token) == (b"first", leadership.epoch)
            assert observing.who().elected == elected


def test_execute_exclusive_passes_the_grant_and_returns_the_result(
    client: Client, url: str, name: str
) -> None:
    """The helper and the decorator run a function under the lock."""
    assert execute_exclusive(client, name, lambda grant: grant.fencing_token) > 0

    @exclusive(name, client=client, timeout=0)
    def report(grant: Grant[Client], day: str, *, copies: int = 1) -> str:
        """Report."""
        assert grant.remaining_safe_ms() > 0
        return f"{day} x{copies}"

    assert report("monday", copies=2) == "monday x2"
    assert report.__name__ == "report"
    with connect(url) as other, Lock(other, name), pytest.raises(LockTimeoutError):
        report("tuesday")


def test_exclusive_without_a_client_connects_by_the_environment(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduled task needs nothing but the decorator."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", url)

    @exclusive(name)
    def task(grant: Grant[Client]) -> int:
        return grant.fencing_token

    assert task() < task()


def interrupt_main_thread_soon(after_s: float) -> threading.Timer:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(after_s, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    return timer


def test_ctrl_c_while_waiting_leaves_the_queue(client: Client, url: str, name: str) -> None:
    """KeyboardInterrupt cancels the wait and waits for its clean-up."""
    with connect(url) as other, Lock(other, name, label="holder"):
        interrupt_main_thread_soon(0.3)
        with pytest.raises(KeyboardInterrupt):
            Lock(client, name, timeout=60).acquire()
        view = other.lock(name)
        assert view.holder is not None
        assert view.queue == ()
    assert client.status().is_ready  # the client goes on


def test_what_an_interrupted_call_had_obtained_is_given_back(client: Client, name: str) -> None:
    """If the grant came in the same instant as Ctrl-C it is not left behind."""
    lock = Lock(client, name)
    entered = threading.Event()
    undone: list[str] = []

    async def slow() -> str:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "obtained"  # as if it were done already when the cancellation came
        raise AssertionError("nobody interrupted")

    async def undo(result: str) -> None:
        undone.append(result)

    interrupt_main_thread_soon(0.2)
    with pytest.raises(KeyboardInterrupt):
        client.call(slow(), undo)

    assert entered.is_set()
    assert undone == ["obtained"]
    assert lock.grant is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("is_posted", [False, True])
def test_an_interrupt_as_a_call_begins_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch, is_posted: bool
) -> None:
    """Before the other thread knows of it, or just after; by then it may have its result."""
    loop = client._thread._loop
    post, has_result, undone = loop.call_soon_threadsafe, threading.Event(), []

    async def quick() -> str:
        has_result.set()
        return "obtained"

    async def undo(result: str) -> None:
        undone.append(result)

    def interrupted(callback: Callable[..., object], *args: object) -> None:
        monkeypatch.undo()
        if is_posted:
            post(callback, *args)
            has_result.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.call(quick(), undo)

    assert undone == (["obtained"] if is_posted else [])
    assert client.status().is_ready


def test_threads_share_one_client(client: Client, name: str) -> None:
    """Sixteen threads contend over one client, one at a time."""
    inside = 0
    tokens = []

    def work(_: int) -> None:
        nonlocal inside
        with Lock(client, name, timeout=60) as grant:
            inside += 1
            assert inside == 1
            tokens.append(grant.fencing_token)
            inside -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(32)))
    assert tokens == sorted(set(tokens))


def test_a_callback_that_would_wait_for_its_own_client_is_refused(
    client: Client, name: str
) -> None:
    """It would wait for ever: it is told so instead."""
    raised: list[BaseException] = []

    async def in_the_loop() -> None:
        try:
            client.get("/")
        except BadArgumentsError as error:
            raised.append(error)

    client.call(in_the_loop())

    assert "callback" in str(raised[0])


def test_a_forked_child_cannot_use_or_harm_its_parents_client(client: Client, name: str) -> None:
    """Every call in the child says why; the parent's lock is untouched by the child's end."""
    with Lock(client, name) as grant:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                client.get("/")
            except ClientClosedError:
                client.close()
                status = 0
            os._exit(status)
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert grant.verify() > 0


def test_a_call_that_waits_while_its_client_is_closed_ends(
    client: Client, url: str, name: str
) -> None:
    """Closing from another thread ends a waiting call with an error, not with silence."""
    waiting = connect(url).open()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            Lock(waiting, name, timeout=60).acquire()
        except BaseException as error:
            raised.append(error)

    with Lock(client, name):
        thread = threading.Thread(target=wait)
        thread.start()
        assert eventually(lambda: len(client.lock(name).queue) == 1)
        waiting.close()
        thread.join(10)
        assert isinstance(raised[0], CoordinatorError)
        assert eventually(lambda: client.lock(name).queue == ())


def test_a_lost_lock_is_told_to_a_body_that_waits_and_asks(client: Client, name: str) -> None:
    """Sync code learns of the loss from ``check``, ``on_lost`` and, at last, the ``with``."""
    notified = threading.Event()
    with pytest.raises(LockLostError), Lock(client, name) as grant:  # noqa: PT012
        grant.on_lost(notified.set)
        client.call(_close_session(client))
        assert notified.wait(5)
        with pytest.raises(LockLostError):
            grant.check()
        assert grant.remaining_safe_ms() == 0
    assert client.lock(name).holder is None


async def _close_session(client: Client) -> None:
    await (await client.core.session()).close(1_000)


def test_a_closed_client_says_so(url: str, name: str) -> None:
    """Calls after the end are definite refusals."""
    with connect(url) as client:
        client.session()
    with pytest.raises(ClientClosedError) as raised:
        client.get("/")
    assert raised.value.definite
    client.close()  # again: harmless


def eventually(is_true: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + patient(within_s)
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.02)
    return False


def test_a_forgotten_client_does_not_keep_its_session_for_ever(
    client: Client, url: str, name: str
) -> None:
    """Its session is closed when nobody can reach it any more."""
    forgotten = connect(url).open()
    forgotten.create(f"/{name}", mode="ephemeral")
    assert client.exists(f"/{name}") is not None
    del forgotten
    gc.collect()

    assert eventually(lambda: client.exists(f"/{name}") is None)


def test_a_program_that_ends_without_closing_releases_its_locks(
    client: Client, url: str, name: str
) -> None:
    """The interpreter's exit closes what was left open, within a bounded time."""
    program = textwrap.dedent(
        f"""
        from coordinator import connect
        from coordinator.recipes import Lock

        client = connect({url!r}, session_timeout=60).open()
        Lock(client, {name!r}).acquire()
        print("held", flush=True)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout == "held\n"
    assert client.lock(name).holder is None


def test_nobody_there_is_an_error_in_time() -> None:
    """A refused connection is definite, within the timeout."""
    began = time.monotonic()
    with connect("http://127.0.0.1:9", timeout=1) as client:
        with pytest.raises(UnavailableError, match="cannot connect"):
            client.create("/a")
        with pytest.raises(UnavailableError), Lock(client, "a", timeout=1):
            pytest.fail("the body ran without the lock")
    assert time.monotonic() - began < patient(5)


def test_endpoints_come_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``COORDINATOR_ENDPOINTS`` is a list, separated by commas."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", f" http://127.0.0.1:9 , {url}/ ")
    with connect(timeout=5) as client:
        assert client.status().is_ready


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_host_and_a_port_are_a_url_of_plain_http(
    url: str, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    """As an argument and in ``COORDINATOR_ENDPOINTS``, alone or among others."""
    address = url.removeprefix("http://")
    with connect(["localhost:9", address] if is_listed else address, timeout=5) as client:
        assert client.status().is_ready
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", f"{address}, [::1]:9/" if is_listed else address)
    with connect(timeout=5) as client:
        assert client.status().is_ready


def test_a_client_says_what_it_is() -> None:
    """Whichever way it was made, and in the errors of attributes that it does not have."""
    client = connect("localhost:7071,http://127.0.0.1:7072")
    assert repr(client) == "<Client of http://localhost:7071, http://127.0.0.1:7072>"
    with pytest.raises(AttributeError, match="'Client' object has no attribute 'nonsense'"):
        client.nonsense  # type: ignore[attr-defined]  # noqa: B018

    async def made() -> None:
        async with connect(["b:2", "a:1"]) as client:
            assert repr(client) == "<AsyncClient of http://a:1, http://b:2>"

    asyncio.run(made())


@pytest.mark.parametrize("wrong", ["", ",", "localhost", "localhost:7071/x", ["ftp://x"]])
def test_wrong_endpoints_are_named(wrong: str | list[str]) -> None:
    """A URL that cannot be one is refused when it is said."""
    with pytest.raises(BadArgumentsError, match="endpoints"):
        connect(wrong)
