"""What belongs to a client stays in its process: it is not pickled, and frozen time is not its."""

from __future__ import annotations

import copy
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import Client
from coordinator.errors import LockTimeoutError, QuotaExceededError
from coordinator.recipes import (
    Election,
    Group,
    Job,
    Lock,
    MultiLock,
    Once,
    Pool,
    ReentrantLock,
    RWLock,
    Semaphore,
    WorkQueue,
)
from tests.client.server_thread import serving
from tests.patience import patient


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url, session_timeout=2) as client:
        yield client


MADE: dict[str, Callable[[Client], Any]] = {
    "a client": lambda client: client,
    "an asyncio client": lambda client: client.core,
    "a session": lambda client: client.session(),
    "a lock": lambda client: Lock(client, "pickled"),
    "a grant": lambda client: Lock(client, "pickled-1").acquire(),
    "several locks": lambda client: MultiLock(client, "pickled-2", "pickled-3"),
    "a reentrant lock": lambda client: ReentrantLock(client, "pickled"),
    "a read/write lock": lambda client: RWLock(client, "pickled"),
    "a semaphore": lambda client: Semaphore(client, "pickled-4", 2),
    "an election": lambda client: Election(client, "pickled"),
    "a queue of a lock": lambda client: client.core.lock_queue("pickled"),
    "a membership": lambda client: Group(client, "pickled").join(),
    "a pool": lambda client: Pool(client, "pickled", ["a"]),
    "a borrowed resource": lambda client: Pool(client, "pickled", ["a"]).borrow(),
    "a job": lambda client: Job(client, "pickled", every="1d"),
    "work once": Once,
    "a work queue": lambda client: WorkQueue(client, "pickled"),
}


@pytest.mark.parametrize("what", MADE)
def test_what_belongs_to_a_client_cannot_be_pickled_and_says_so(client: Client, what: str) -> None:
    """As multiprocessing does with arguments: the error says what to send instead."""
    made = MADE[what](client)
    for send in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"cannot pickle or copy a .* belongs to a client of"):
            send(made)


def test_frozen_time_stops_no_heartbeat(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that freezes the time of the standard library keeps its locks (as freezegun does)."""
    with connect(url, session_timeout=2) as client:
        grant = Lock(client, "frozen").acquire()
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        least, moment = grant.remaining_safe_ms(), threading.Event()
        for _ in range(int(patient(200))):
            moment.wait(0.05)
            if (left := grant.remaining_safe_ms()) > least:
                break
            least = left
        monkeypatch.undo()
        assert left > least, "no heartbeat was acknowledged"
        assert grant.verify() > 0


def test_a_timeout_says_that_the_holder_is_this_very_client(client: Client, url: str) -> None:
    """Of a lock, a semaphore and an election; of another client's it does not say so."""
    held = Lock(client, "own", owner="")
    held.acquire()
    election = Election(client, "own")
    election.campaign()
    tries = [
        lambda: Lock(client, "own", owner="").acquire(timeout=0),
        lambda: Lock(client, "own", owner="").acquire(timeout=0.1),
        lambda: MultiLock(client, "other", "own", owner="").acquire(timeout=0),
        lambda: Election(client, "own").campaign(timeout=0),
    ]
    for attempt in tries:
        with pytest.raises(LockTimeoutError, match="this very client holds it"):
            attempt()
    with connect(url) as other, pytest.raises(LockTimeoutError) as raised:
        Lock(other, "own").acquire(timeout=0)
    assert "very client" not in raised.value.message


def test_a_client_without_a_label_says_where_it_is(client: Client) -> None:
    """In containers every process is number 1, so its host's name goes before."""
    client.session()
    label = f"{socket.gethostname()} pid {os.getpid()}"
    assert label in [each.label for each in client.sessions()]


def test_a_subtree_that_is_too_large_is_deleted_in_parts(client: Client) -> None:
    """The error says how, and what it says works."""
    client.set_limits({"recursive_delete_max": 3}, by="ann")
    path = "/many"
    client.create(path)
    for name in "abc":
        client.create(f"{path}/{name}")
    with pytest.raises(QuotaExceededError) as raised:
        client.delete(path, recursive=True)
    (hint,) = raised.value.__notes__
    line = hint.split("`")[1].replace(": client.delete", ":\n    client.delete")
    exec(line, {"client": client, "path": path})  # noqa: S102 - our own line
    client.delete(path)


def test_an_integer_names_a_lock_for_every_verb(client: Client) -> None:
    """As it does for the recipes."""
    with Lock(client, 5) as grant, Election(client, 5):
        holder = client.lock(5).holder
        assert holder is not None
        assert holder.fencing_token == grant.fencing_token
        assert client.election(5).elected is not None
        assert [each.lock for each in client.grants(5)] == ["5"]
