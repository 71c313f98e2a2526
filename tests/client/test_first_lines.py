"""What users of kazoo, redis-py, python-etcd3 and threading type first.

Each line works, or its error names the line that does; and the lines that are named do work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import coordinator
from coordinator import Client, Lock, connect
from coordinator.client import Create, Delete, Read, RetryPolicy, SetData
from coordinator.client.verbs import hints, peer_names
from coordinator.errors import BadArgumentsError, ClientClosedError, NoNodeError
from coordinator.model.views import HOLD_LINE
from tests.client.server_thread import serving

OWN_NAMES = [each for each in coordinator.__all__ if not each.startswith("_")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def names(url: str) -> Iterator[dict[str, Any]]:
    """What stands before the typed line: a client that nobody entered, and a lock of it."""
    client = connect(url)
    lock = Lock(client, "first-line", timeout=5)
    yield {"client": client, "lock": lock, "connect": connect, "url": url}
    client.close()


WORKS = [
    'client.create("/works", b"x")',
    'client.get("/works").data',
    'client.exists("/works")',
    'client.set("/works", b"y")',
    'client.delete("/works", recursive=True)',
    "client.children('/').names",
    "lock.acquire(), lock.release()",
    "lock.acquire(blocking=False), lock.release()",
    "lock.acquire(True, 5), lock.release()",
    "lock.acquire(timeout=1), lock.release()",
    "lock.try_acquire(), lock.release()",
    "lock.grant",
    "client.status().members",
    "client.open().get('/')",
    "coordinator.Lock, coordinator.Election, coordinator.RWLock, coordinator.FOREVER",
]


@pytest.mark.parametrize("line", WORKS)
def test_a_first_line_works(names: dict[str, Any], line: str) -> None:
    """On what ``connect`` returns, as it stands."""
    client: Client = names["client"]
    if client.exists("/works") is None and "create" not in line:
        client.create("/works", b"x")
    elif "create" in line:
        client.delete("/works") if client.exists("/works") else None

    eval(line, {"coordinator": coordinator, **names})  # noqa: S307


NAMES_THE_LINE = {
    # kazoo
    "client.start()": "connects at its first verb",
    "client.stop()": "client.close()",
    'client.ensure_path("/a/b")': "client.create(path, parents='persistent')",
    'client.get_children("/a")': "client.children(path).names",
    'client.create("/a", b"x", ephemeral=True, sequence=True, makepath=True)': (
        "mode='ephemeral_sequential'"
    ),
    'client.create("/a", b"x", makepath=True)': "parents='persistent'",
    'client.create("/a", value=b"x")': "client.create(path, data)",
    'client.set("/a", b"x", version=3)': "expected_version=version",
    'client.delete("/a", version=3)': "expected_version=version",
    "data, stat = client.get('/')": "znode.data",
    'client.get("/", watch=print)': "client.watch(path)",
    "for name in client.children('/'): pass": "client.children(path).names",
    'client.Lock("/lock", "me")': "with Lock(client,",
    'client.DataWatch("/a")': "client.watch(path)",
    "client.transaction()": "client.multi([Create(",
    'client.Party("/web")': "Group(client,",
    'client.get_async("/a")': "await client.get(path)",
    "from coordinator import SetPartitioner": "Partitioner(client,",
    "client.add_listener(print)": "on_state(callback)",
    "from coordinator import KazooClient": "connect(",
    'connect(hosts="127.0.0.1:7071")': "connect('http://127.0.0.1:7071",
    # redis-py
    'with client.lock("x", timeout=10): pass': "with Lock(client,",
    'with client.lock("x"): pass': "with Lock(client,",
    'client.lock("x").acquire(blocking=False)': "with Lock(client,",
    "lock.locked()": "lock.grant",
    "lock.owned()": "lock.grant",
    "lock.extend(10)": "grant.extend()",
    'client.setnx("/a", b"x")': "client.create(path, data)",
    'client.incr("/a")': "Counter(client,",
    "client.ping()": "client.status()",
    'client.hget("/a", "b")': "Configuration(client,",
    'client.rpush("/a", "b")': "WorkQueue(client,",
    "from coordinator import Redis": "connect(",
    'connect(host="localhost", port=6379)': "connect('http://127.0.0.1:7071')",
    # python-etcd3
    'client.put("/a", b"x")': "client.set(path, data)",
    'client.replace("/a", b"x", b"y")': "expected_version=version",
    'client.get_prefix("/a")': "client.subtree(path)",
    "client.lease(10)": "mode='ephemeral'",
    # threading
    "lock.acquire(5)": "acquire(timeout=5)",
    "lock.acquire(timeout=-1)": "FOREVER",
    "lock.is_acquired": "lock.grant",
    "from coordinator import RLock": "from coordinator import ReentrantLock",
    "from coordinator import Mutex": "from coordinator import Lock",
    # what one may think of here
    'coordinator.Client("http://127.0.0.1:7071")': "connect('http://127.0.0.1:7071')",
    'coordinator.AsyncClient("http://127.0.0.1:7071")': "await connect('http://127.0.0.1:7071')",
    'connect("127.0.0.1")': "http://127.0.0.1:7071",
}


@pytest.mark.parametrize("line", NAMES_THE_LINE)
def test_a_first_line_is_answered_with_the_one_that_works(names: dict[str, Any], line: str) -> None:
    """The error is of the usual class, and says what to type instead."""
    with pytest.raises((AttributeError, TypeError, ImportError, BadArgumentsError)) as caught:
        exec(line, {"coordinator": coordinator, **names})  # noqa: S102

    assert NAMES_THE_LINE[line] in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        'async with client.lock("x"): pass',
        'await client.lock("x").acquire()',
        'await client.create("/a", ephemeral=True)',
        'await client.get_children("/a")',
    ],
)
async def test_the_asyncio_face_answers_as_well(url: str, line: str) -> None:
    """With ``async with`` and await, too."""
    body = f"async def typed(client):\n    {line}"
    scope: dict[str, Any] = {}
    exec(body, scope)  # noqa: S102
    async with connect(url) as client:
        with pytest.raises((AttributeError, TypeError), match=r"`.+`"):
            await scope["typed"](client)
        assert (await client.lock("x")).holder is None


def lines_of(*tables: Mapping[str, str]) -> list[str]:
    """Every piece of code that a table names, and none twice."""
    found: dict[str, None] = {}
    for table in tables:
        for text in table.values():
            found.update(dict.fromkeys(re.findall(r"`([^`]+)`", text)))
            imports = re.findall(r"\((from coordinator\S* import [\w, ]+)\)", text)
            found.update(dict.fromkeys(imports))
    return list(found)


NAMED = [
    line
    for line in lines_of(
        peer_names.HINTS,
        dict(peer_names.FAMILIES),
        *(hints.CONTENDER, hints.PACKAGE),
        *hints.KEYWORDS.values(),
    )
    if line not in ("with", "zxid")  # words, and no lines
]


@pytest.mark.parametrize("line", [*NAMED, *lines_of({"": HOLD_LINE})])
def test_the_line_that_is_named_works(names: dict[str, Any], line: str, url: str) -> None:
    """Nobody is sent from one line that fails to another one."""
    line = line.replace("`", "")
    client: Client = names["client"]
    client.delete("/named", recursive=True) if client.exists("/named") else None
    if "create" not in line.lower():
        client.create("/named", b"1")
    if "old" in line:
        for each in ("/old", "/renamed"):
            client.delete(each) if client.exists(each) else None
        client.create("/old", b"1")
    if line == "with client.watch(path) as changes:":
        line += "\n    pass"
    elif line.endswith(":"):
        line += " pass"
    if line.startswith("for change"):
        line = "changes = []\n" + line
    if line.startswith("next(changes)"):
        line = "changes = iter([1])\n" + line
    if line.startswith("async with"):
        line = f"async def by_asyncio():\n    {line}"
    if line.startswith("await "):
        line = f"async def by_asyncio(client):\n    {line}"
    if line.startswith("with election"):
        line = "election = coordinator.Election(client, 'named', timeout=5)\n" + line
    scope = {
        **names,
        "coordinator": coordinator,
        "path": "/named",
        "data": b"x",
        "version": 0,
        "name": "named",
        "callback": print,
        "Create": Create,
        "RetryPolicy": RetryPolicy,
        "election": coordinator.Election(client, "named", timeout=5),
        "Read": Read,
        "Delete": Delete,
        "SetData": SetData,
        "logging": logging,
        "old": "/old",
        "new": "/renamed",
        "more": b"y",
        "item": "a",
        "score": 7,
        "value": "b",
        "rules": [],
        "limits": {"children_max": 100_000},
        "who": "ann",
        **{each: getattr(coordinator, each) for each in OWN_NAMES},
        "Lock": coordinator.Lock,
        "RWLock": coordinator.RWLock,
        "Semaphore": coordinator.Semaphore,
        "Election": coordinator.Election,
        "change": lambda data: data,
        "connect": lambda url, **_: connect(url),  # whatever its files are
    }
    if "grant." in line and "lock.grant" not in line:
        scope["grant"] = Lock(client, "named").acquire()

    exec(line, scope)  # noqa: S102


# --- the client as connect returns it


def test_a_client_needs_no_with(url: str) -> None:
    """It begins with its first verb, and ends with close(); then it says so."""
    client = connect(url)
    client.create("/without-with", b"x")
    with Lock(client, "without-with") as grant:
        assert grant.fencing_token
    client.close()
    client.close()

    with pytest.raises(ClientClosedError, match=r"connect\(\) makes another"):
        client.get("/")
    never_used = connect(url)
    never_used.close()
    with pytest.raises(ClientClosedError):
        never_used.get("/")


def test_with_closes_what_was_used_before(url: str) -> None:
    """``with client:`` around what is open already ends it, as with a file."""
    client = connect(url)
    session = client.session()
    with client as same:
        assert same is client
        assert same.session() is session

    assert session.is_lost


async def test_a_client_is_had_by_await(url: str) -> None:
    """``await connect(...)`` is the asyncio client, to be closed by its owner."""
    client = await connect(url)
    try:
        assert (await client.get("/")).path == "/"
    finally:
        await client.close()


async def test_verbs_that_wait_are_refused_in_a_running_loop(url: str) -> None:
    """They would block it; the error names both ways to go on. ``with`` is one of them."""
    client = connect(url)
    for typed in (lambda: client.get("/"), lambda: Lock(client, "x"), lambda: client.watch("/")):
        with pytest.raises(BadArgumentsError, match="async with connect"):
            typed()

    with client:
        assert client.get("/").path == "/"


async def test_a_lock_of_the_wrong_face_names_the_right_client(url: str) -> None:
    """``async with`` over a client that waits."""
    with connect(url) as client, pytest.raises(BadArgumentsError, match="await connect"):
        async with Lock(client, "x"):  # type: ignore[misc]
            pass
    async with connect(url) as awaited:
        with pytest.raises(BadArgumentsError, match=r"client = connect"), Lock(awaited, "x"):  # type: ignore[misc]
            pass


def test_many_threads_may_use_it_first(url: str) -> None:
    """One of them begins; all of them have one session."""
    client = connect(url)

    async def all_at_once() -> list[Any]:
        asking = [asyncio.to_thread(client.session) for _ in range(8)]
        return await asyncio.gather(*asking)

    assert len({each.session_id for each in asyncio.run(all_at_once())}) == 1
    client.close()


def run(program: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


def test_a_client_that_is_not_closed_ends_with_the_program(url: str) -> None:
    """Its session is closed, and nothing is printed."""
    done = run(
        """
        import sys, coordinator
        client = coordinator.connect(sys.argv[1], label="left open")
        client.create("/left-open", mode="ephemeral")
        print(client.exists("/left-open") is not None)
        """,
        url,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)
    with connect(url) as client:
        assert client.exists("/left-open") is None


def test_a_client_made_before_a_fork_belongs_to_who_uses_it(url: str) -> None:
    """A module's ``client = connect(...)`` works in the workers of a server that forks."""
    done = run(
        """
        import os, sys, coordinator
        client = coordinator.connect(sys.argv[1])
        for _ in range(2):
            child = os.fork()
            if child == 0:
                print(client.get("/").path, flush=True)
                client.close()
                os._exit(0)
            os.waitpid(child, 0)
        print(client.get("/").path)
        """,
        url,
    )

    assert done.stdout == "/\n/\n/\n", done.stderr


MISSED = {
    'client.create("/no/parent/here", b"x")': "parents='persistent'",
    'client.set("/missing", b"x")': "`client.create(path, data)`",
    'client.get("/missing")': "`client.exists(path)`",
    'client.children("/missing")': "parents='persistent'",
    'client.delete("/missing")': "catch NoNodeError",
    'client.update("/missing", bytes.upper)': "`client.exists(path)`",
}


@pytest.mark.parametrize("line", MISSED)
def test_a_missing_znode_is_answered_with_what_to_type(line: str, names: dict[str, Any]) -> None:
    """One hint below the traceback, in the sync client and the asyncio one; the message stays."""
    with pytest.raises(NoNodeError) as missed:
        eval(line, dict(names))  # noqa: S307 - our own lines

    assert "hint" not in missed.value.message
    (note,) = missed.value.__notes__
    assert note.startswith("hint: ")
    assert MISSED[line] in note

    async def awaited() -> None:
        async with connect(names["url"]) as client:
            await eval(line, {"client": client})  # noqa: S307 - our own lines

    with pytest.raises(NoNodeError) as missed:
        asyncio.run(awaited())
    assert missed.value.__notes__ == [note]


def test_what_the_hints_of_missing_znodes_name_works(names: dict[str, Any]) -> None:
    """Each line in them does what it says."""
    client = names["client"]
    assert client.create("/hints/made/here", b"x", parents="persistent").path == "/hints/made/here"
    assert client.exists("/hints/nothing") is None
    assert client.set("/hints/made/here", b"y").stat.version == 1
