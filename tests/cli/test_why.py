"""Why a lock is as it is, and what became of a grant, in sentences a tired person understands."""

from __future__ import annotations

import asyncio
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cli.why import story_of
from coordinator.client import AsyncClient, Client, connect
from coordinator.errors import NoNodeError
from coordinator.recipes import Election, Lock, MultiLock, RWLock, Semaphore
from coordinator.wording import who
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember
from tests.client.memory_cluster import MemoryCluster, in_memory


async def asked(client: AsyncClient, name: str) -> str:
    return "\n".join((await client.why(name)).sentences)


async def story(client: AsyncClient, name: str, grant: str | None, **more: bool) -> list[str]:
    return list((await story_of(client, name, grant, **more)).sentences)


async def stand(lock: Lock[AsyncClient]) -> asyncio.Task[object]:
    """Let ``lock`` wait in a task of its own, and return when it stands in the queue."""
    task: asyncio.Task[object] = asyncio.create_task(lock.acquire(timeout=600))
    await asyncio.sleep(1)
    return task


@in_memory
async def test_a_held_lock_is_told_with_holder_and_queue(world: MemoryCluster) -> None:
    """Who, where, since when, with which token, safe until when; then who waits, in order."""
    async with world.client() as client, world.client() as other:
        lock = Lock(client, "daily", label="report", owner="step 1", max_hold=600, lock_delay=5)
        grant = await lock.acquire()
        await grant.note(b"row 1000")
        waiting = await stand(Lock(other, "daily", label="nightly"))
        await asyncio.sleep(89)

        text = await asked(other, "daily")

        assert "daily is held by 'report' (host " in text
        assert "step 1" in text
        assert "for 1 min 30 s" in text
        assert f"fencing token {grant.fencing_token}." in text
        assert re.search(
            r"certainly holds for another [\d.]+ s; heartbeats renew its lease of 10", text
        )
        assert "for 10 min at most" in text
        assert "closed for another 5.0 s" in text
        assert "row 1000" in text
        assert "1 contender waits, in this order:\n1. 'nightly'" in text
        waiting.cancel()
        await asyncio.wait({waiting})


@in_memory
async def test_a_free_lock_says_who_held_it_last(world: MemoryCluster) -> None:
    """Free and never known look different from free after a loss."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        assert "daily is free" in await asked(other, "daily")
        await Lock(client, "daily", label="report").acquire()
        network.is_cut = True
        await asyncio.sleep(10)

        text = await asked(other, "daily")

        assert "daily is free" in text
        assert "last held by 'report'" in text
        assert "had heard nothing of its session for" in text
        network.is_cut = False


@in_memory
async def test_who_held_last_is_who_gave_back_last(world: MemoryCluster) -> None:
    """Readers leave in any order: the last to leave counts, not the last to come."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        first = await RWLock(other, "daily", label="long").read().acquire()
        second = await RWLock(other, "daily", label="short", owner="2").read().acquire()
        await second.release()
        await first.release()
        assert "last held by 'long'" in await asked(other, "daily")

        lost = await RWLock(client, "daily", label="lost").read().acquire()
        forced = await RWLock(other, "daily").read().acquire()
        await other.revoke("daily", by="ops", reason="stuck", grant_id=forced.grant_id)
        network.is_cut = True
        await asyncio.sleep(10)

        assert lost.grant_id in (await story(other, "daily", None))[0]
        network.is_cut = False


@in_memory
async def test_readers_who_wait_behind_a_lost_one_are_told_why(world: MemoryCluster) -> None:
    """Another reader goes on holding; the lock is closed to who comes now, and that is said."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        await RWLock(client, "daily", lock_delay=60).read().acquire()
        await RWLock(other, "daily", label="alive").read().acquire()
        network.is_cut = True
        await asyncio.sleep(10)
        waiting = await stand(RWLock(other, "daily", owner="late").read())

        text = await asked(other, "daily")

        assert "daily is held by 'alive'" in text
        assert "daily is closed to later contenders for another" in text
        assert "1 contender waits" in text
        waiting.cancel()
        await asyncio.wait({waiting})
        network.is_cut = False


@in_memory
async def test_a_closed_lock_says_for_how_long_and_why(world: MemoryCluster) -> None:
    """Lock-delay is not mistaken for a holder."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        await Lock(client, "daily", lock_delay=60).acquire()
        network.is_cut = True
        await asyncio.sleep(10)

        text = await asked(other, "daily")

        assert "daily is closed for another 5" in text
        assert "lock-delay of 1 min" in text
        network.is_cut = False


@in_memory
async def test_a_holder_that_waits_itself_is_followed(world: MemoryCluster) -> None:
    """A waits for B, whose holder waits for C: all of it is lines_of."""
    async with world.client() as client, world.client() as other:
        await Lock(client, "a", owner="one", label="first").acquire()
        await Lock(other, "b", owner="two", label="second").acquire()
        await Lock(other, "c", owner="three", label="third").acquire()
        tasks = [
            await stand(Lock(client, "b", owner="one")),
            await stand(Lock(other, "c", owner="two")),
            await stand(Lock(other, "a", owner="four")),
        ]

        why = await client.why("a")
        text = "\n".join(why.sentences)

        assert [link.lock for link in why.chain] == ["b", "c"]
        assert "The holder itself waits for b, held by 'second'" in text
        assert "The holder itself waits for c, held by 'third'" in text
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@in_memory
async def test_any_of_several_holders_that_waits_itself_is_followed(world: MemoryCluster) -> None:
    """The second reader is the one that waits for another lock."""
    async with world.client() as client, world.client() as other, Lock(other, "b", owner="x"):
        await RWLock(client, "a", owner="idle").read().acquire()
        await RWLock(client, "a", owner="busy", label="second").read().acquire()
        tasks = [
            await stand(Lock(client, "b", owner="busy", label="second")),
            await stand(RWLock(other, "a", owner="writer").write()),
        ]

        text = await asked(client, "a")

        assert "Its holder 'second'" in text
        assert "itself waits for b" in text
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@in_memory
async def test_several_holders_are_told_one_by_one(world: MemoryCluster) -> None:
    """Readers, and slots of a semaphore with its size."""
    async with world.client() as client:
        for number in range(2):
            await RWLock(client, "accounts", owner=f"r{number}").read().acquire()
            await Semaphore(client, "licences", 3, owner=f"s{number}").acquire()

        readers = await asked(client, "accounts")
        slots = await asked(client, "licences")

        for number in range(2, 12):
            await RWLock(client, "accounts", owner=f"r{number}").read().acquire()
        many = await asked(client, "accounts")

        assert "accounts has 12 holders." in many
        assert many.count("accounts is held by") == 10
        assert "… and 2 more holders." in many
        assert "accounts has 2 holders." in readers
        assert readers.count("accounts is held by") == 2
        assert "licences has 2 holders of 3." in slots


@in_memory
async def test_a_lock_wanted_together_with_another_says_so(world: MemoryCluster) -> None:
    """Nobody holds it, and yet it is not free."""
    async with world.client() as client, world.client() as other, Lock(other, "b"):
        task = asyncio.create_task(MultiLock(client, "a", "b").acquire(timeout=60))
        await asyncio.sleep(1)

        text = await asked(other, "a")

        assert "Nobody holds a" in text
        assert "also waits for other locks" in text
        task.cancel()
        await asyncio.wait({task})


@in_memory
async def test_a_grant_that_expired_is_told_with_its_last_heartbeat_and_the_next_holder(
    world: MemoryCluster,
) -> None:
    """When it was last heard of, who decided, who was next, what to look at."""
    network = world.network()
    async with world.client(network, session_timeout=3) as client, world.client() as other:
        grant = await Lock(client, "daily", label="report").acquire()
        network.is_cut = True
        next_grant = await Lock(other, "daily", timeout=60).acquire()

        for asked_for in (None, grant.grant_id, str(grant.fencing_token)):
            lines = await story(other, "daily", asked_for)
            text = "\n".join(lines)
            assert "the leader of term" in text
            assert "had heard nothing of its session for 3." in text
            assert "last heartbeat that arrived" in text
            assert f"The next grant was {next_grant.grant_id}" in text
        network.is_cut = False


@in_memory
async def test_what_is_not_lost_is_said_not_to_be(world: MemoryCluster) -> None:
    """Held, released, forced: each in its own words; unknown is an error."""
    async with world.client() as client:
        lock = Lock(client, "daily")
        grant = await lock.acquire()
        assert "It is not lost" in "\n".join(
            await story(client, "daily", grant.grant_id)
        )
        await lock.release()
        released = await story(client, "daily", grant.grant_id)
        assert any("it was released" in line for line in released)
        with pytest.raises(NoNodeError, match="was lost"):
            await story_of(client, "daily", None)
        with pytest.raises(NoNodeError, match="token 99999"):
            await story_of(client, "daily", "99999")
        await lock.acquire()
        await client.revoke("daily", by="ops", reason="stuck")
        forced = "\n".join(await story(client, "daily", None))
        assert "ops released it by force, for this reason: stuck" in forced


@in_memory
async def test_a_lost_leadership_has_its_story_too(world: MemoryCluster) -> None:
    """An election is looked for among the elections."""
    network = world.network()
    async with world.client(network, session_timeout=3) as client, world.client() as other:
        leadership = await Election(client, "scheduler").campaign()
        network.is_cut = True
        await Election(other, "scheduler").campaign()

        lines = await story(other, "scheduler", None, is_election=True)

        assert leadership.grant_id in lines[0]
        assert any("heard nothing" in line for line in lines)
        with pytest.raises(NoNodeError):
            await story_of(other, "scheduler", None)
        network.is_cut = False


# --- as commands


@pytest.fixture
def client(member: ServedMember) -> Client:
    return connect(member.url, label="a program").open()


def test_the_commands_answer_in_words_and_in_json(coordinator: CommandLine, client: Client) -> None:
    """why, why-lost, grants and revoke against a member over HTTP."""
    with client:
        grant = Lock(client, "cli", label="report").acquire()

        assert "cli is held by 'report'" in coordinator.text("why", "cli")
        assert coordinator.json("why", "cli")["holder"]["grant_id"] == grant.grant_id
        assert "It is not lost" in coordinator.text("why-lost", "cli", grant.grant_id)
        revoked = coordinator.text("revoke", "cli", "--by", "ops", "--reason", "stuck")
        assert f"Raise every guard to token {grant.fencing_token + 1}" in revoked
        assert coordinator.json("why-lost", "cli")["grant"]["by"] == "ops"
        assert "cli is free" in coordinator.text("why", "cli")


def test_the_history_is_a_table_or_a_line_of_json_for_each_grant(
    coordinator: CommandLine, client: Client
) -> None:
    """Filtered by how it ended, by time, by number; each line stands for itself."""
    with client:
        for _ in range(3):
            with Lock(client, "listed"):
                pass
        held = Lock(client, "listed").acquire()

        table = coordinator.text("grants", "listed").splitlines()
        lines = coordinator.text("grants", "listed", "--json").splitlines()

        assert table[0].split()[:3] == ["GRANTED", "LOCK", "GRANT"]
        assert len(table) == 5
        assert [json.loads(line)["how"] for line in lines] == ["released"] * 3 + [""]
        assert len(coordinator.text("grants", "listed", "--how", "released").splitlines()) == 4
        assert held.grant_id in coordinator.text("grants", "listed", "--how", "held")
        assert len(coordinator.text("grants", "listed", "--limit", "2").splitlines()) == 3
        assert len(coordinator.text("grants", "listed", "--since", "1h").splitlines()) == 5
        assert len(coordinator.text("grants", "listed", "--until", "2001-01-01").splitlines()) == 1
        assert coordinator("grants", "--since", "yesterday").exit_code == 2


def test_what_others_wrote_cannot_move_the_cursor(coordinator: CommandLine, client: Client) -> None:
    """Labels and owners are escaped in every sentence."""
    with client:
        Lock(client, "evil", label="\x1b]0;x\x07", owner="\x1b[2J").acquire()
        for text in (coordinator.text("why", "evil"), coordinator.text("grants", "evil")):
            assert "\x1b" not in text
            assert "\\x1b" in text


def test_a_write_may_depend_on_a_grant(coordinator: CommandLine, client: Client) -> None:
    """--if-held NAME:TOKEN, as a command under ``coordinator lock`` finds them."""
    with client:
        grant = Lock(client, "importer:7").acquire()
        held = f"importer:7:{grant.fencing_token}"
        coordinator.text("create", "/fenced", "0", "--if-held", held)
        coordinator.text("set", "/fenced", "1", "--if-held", held)
        grant.release()

        for arguments in (
            ("set", "/fenced", "2"),
            ("delete", "/fenced"),
            ("create", "/other", "x"),
        ):
            refused = coordinator(*arguments, "--if-held", held)
            assert refused.exit_code == 1
            assert "LockLost" in refused.stderr
        token = grant.fencing_token
        body = {
            "operations": [{"op": "delete", "path": "/fenced"}],
            "if_held": {"lock": "importer:7", "fencing_token": token},
        }
        assert coordinator("multi", stdin=json.dumps(body)).exit_code == 1
        assert coordinator("set", "/fenced", "2", "--if-held", "importer").exit_code == 2
    assert coordinator.text("get", "/fenced") == "1"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"session_id": "ab12"}, "session ab12"),
        ({"session_id": ""}, "session unknown"),
        ({"session_id": "ab12", "host": "h1", "pid": 7}, "session ab12 (host h1, pid 7)"),
        ({"session_id": "ab12", "label": "report"}, "'report' (session ab12)"),
        (
            {"session_id": "ab12", "label": "report", "host": "h1", "pid": 7, "owner": "t"},
            "'report' (host h1, pid 7, t, session ab12)",
        ),
    ],
)
def test_somebody_is_called_by_what_is_known(facts: dict[str, Any], expected: str) -> None:
    """Whoever gave no label has a name all the same: "held by (session ab12)" is no sentence."""
    nobody = {"label": "", "host": "", "pid": None, "owner": ""}

    assert who(SimpleNamespace(**{**nobody, **facts})) == expected
