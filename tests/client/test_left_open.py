"""What is left open, or closed under somebody's hands: one clean error, and nothing printed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator import Client, ClientClosedError, CoordinatorError, connect
from coordinator.client.connecting import TransportName
from coordinator.recipes import Lock
from tests.client.server_thread import serving
from tests.client.stream.scripted import until


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


def is_clean(error: BaseException) -> bool:
    """Whether a traceback shows this error alone."""
    return error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)


@pytest.mark.parametrize("verb", ["watch", "observe"])
def test_a_stream_whose_client_is_closed_ends_with_one_error(url: str, verb: str) -> None:
    """A thread that waits for the next change is told at once what has happened."""
    client = connect(url)
    stream = client.watch("/") if verb == "watch" else client.observe("closed")
    ended: list[BaseException] = []

    def listen() -> None:
        try:
            for _ in stream:
                pass
        except BaseException as error:
            ended.append(error)

    listener = threading.Thread(target=listen)
    listener.start()
    client.sessions()  # the listener waits by now, or is about to
    client.close()
    listener.join(8)  # a silent stream would be given up after 12 s

    assert [type(error) for error in ended] == [ClientClosedError]
    assert is_clean(ended[0])


@pytest.mark.parametrize("verb", ["watch", "observe"])
async def test_so_does_one_on_asyncio(url: str, verb: str) -> None:
    """Also if its client is closed while nobody waits for the stream."""
    client = await connect(url)
    waited = await (client.watch("/") if verb == "watch" else client.observe("closed")).open()
    idle = await (client.watch("/") if verb == "watch" else client.observe("closed")).open()
    if verb == "observe":
        await anext(waited)
        await anext(idle)
    waiting = asyncio.ensure_future(anext(waited))
    await asyncio.sleep(0)
    await client.close()

    for asked in (waiting, anext(idle)):
        with pytest.raises(ClientClosedError) as caught:
            await asyncio.wait_for(asked, 8)
        assert is_clean(caught.value)


PROGRAMS = {
    "a watch": """
        async def main():
            async with connect(url) as client:
                changes = await client.watch("/")
    """,
    "a watch that was broken off": """
        async def main():
            async with connect(url) as client:
                await client.create("/broken-off", mode="ephemeral")
                async for change in client.watch("/broken-off", from_zxid=0):
                    break
    """,
    "a task that listens": """
        async def main():
            client = await connect(url)
            async def listen():
                async for change in client.watch("/"):
                    pass
            listening = asyncio.create_task(listen())
            await client.session()
            await asyncio.sleep(0.1)
    """,
    "a client": """
        async def main():
            client = await connect(url)
            await client.create("/left", mode="ephemeral")
            await Lock(client, "left").acquire()
    """,
    "cancelled acquires": """
        async def main():
            async with connect(url) as holder, Lock(holder, "crowd"):
                async with connect(url) as client:
                    crowd = [
                        asyncio.create_task(Lock(client, "crowd", owner="").acquire())
                        for _ in range(300)
                    ]
                    await asyncio.sleep(0.2)
                    for each in crowd:
                        each.cancel()
                    await asyncio.wait(crowd)
    """,
    "acquires under way": """
        async def main():
            client = await connect(url)
            crowd = [
                asyncio.create_task(Lock(client, f"way/{n % 3}", owner="").acquire())
                for n in range(100)
            ]
            await asyncio.sleep(0.2)
    """,
    "a sync watch": """
        async def main():
            pass
        client = connect(url)
        changes = client.watch("/")
        Lock(client, "sync").acquire()
    """,
}


@pytest.mark.parametrize(
    "is_wired", [False, pytest.param(True, marks=pytest.mark.check)], ids=["http", "test kit"]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_left_open_at_the_end_prints_nothing(url: str, name: str, is_wired: bool) -> None:
    """No traceback, no warning however little is suppressed; and its session is closed. So it is
    over the wire of the test kit, whose users leave as much open."""
    program = "import asyncio, sys\nfrom coordinator import Lock, connect\nurl = sys.argv[1]\n"
    text = textwrap.dedent(PROGRAMS[name])
    if is_wired:
        program += "from coordinator.testing.client_wire import Wire\n"
        text = text.replace("connect(url)", "connect(url, transport=Wire())")
    program += text + "\nasyncio.run(main())\n"
    before = connect(url)
    sessions = len(before.sessions())

    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program, url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert len(before.sessions()) == sessions
    before.close()


async def test_a_blocking_client_in_an_event_loop_is_a_warning() -> None:
    """`with connect()` in an async def stops the loop while it waits: the line to write is said."""
    client = connect("http://127.0.0.1:1")
    with pytest.warns(RuntimeWarning, match=r"`async with connect\(\.\.\.\) as client:`"), client:
        pass


def test_a_blocking_client_in_a_thread_without_a_loop_is_none() -> None:
    """There it is what is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with connect("http://127.0.0.1:1"):
            pass


FAILING: dict[str, Callable[[Client], object]] = {
    "get": lambda client: client.get("/"),
    "session": lambda client: client.session(),
    "lock": lambda client: Lock(client, "x").acquire(timeout=0.1),
    "watch": lambda client: next(iter(client.watch("/", contact_timeout=0.1))),
}


@pytest.mark.parametrize("transport", ["auto", "stream", "http"])
@pytest.mark.parametrize("verb", FAILING)
def test_a_client_that_is_dropped_after_a_failed_call_leaves_nothing(
    transport: TransportName, verb: str
) -> None:
    """Its threads and descriptors end with it, though its caller caught an error of it."""

    def fail() -> weakref.ref[Client]:
        client = connect("http://127.0.0.1:9", transport=transport, timeout=0.1)
        with pytest.raises(CoordinatorError):
            FAILING[verb](client)
        return weakref.ref(client)

    threads = set(threading.enumerate())
    dropped = fail()

    until(lambda: gc.collect() >= 0 and dropped() is None)
    until(lambda: set(threading.enumerate()) <= threads)
