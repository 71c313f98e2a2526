"""``coordinator recover``: a cluster begins again from one member's data, on real files."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator import connect
from coordinator.cli.main import cli
from coordinator.errors import AuthFailedError, StorageError
from coordinator.node.config_file import load
from coordinator.node.recovery import NUMBERS_SKIPPED, begin_again, continued
from coordinator.node.server import Server
from coordinator.raft.network.messages import INTEGER_MAX
from coordinator.raft.rejoin.refounding import Position
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage.disk import OsDisk
from coordinator.recipes import Lock
from coordinator.service.base.replica import MachineReplica
from coordinator.state.commands import Create, HeldCondition, OpenSession
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from tests.ports import free_ports
from tests.state.test_quota_laws import kept, recounted
from tests.state.test_quotas import Room as QuotaRoom
from tests.state.test_session_ends import Room


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    """The configuration of a member that is the whole cluster."""
    (port,) = free_ports(1)
    path = tmp_path / "member.toml"
    path.write_text(
        f'[member]\nmember_id = "1"\ndata_dir = "{tmp_path}/data"\n[http]\nbind_port = {port}\n'
    )
    return path


def recover(config_path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["recover", "--config", str(config_path), *arguments])


async def served(config_path: Path, act: Any) -> Any:
    """Run the member while ``act`` uses it."""
    server = Server(load(config_path))
    await server.start()
    try:
        async with connect(server.url) as client:
            return await act(client)
    finally:
        await server.stop()


async def taken(client: Any) -> int:
    async with Lock(client, "report") as grant:
        return int(grant.fencing_token)


def test_tokens_go_on_far_above_all_that_were_given_out(config_path: Path, tmp_path: Path) -> None:
    """What is there stays; a token that was given out and lost cannot come a second time."""

    async def write(client: Any) -> int:
        await client.create("/kept", b"as it was")
        return await taken(client)

    async def read(client: Any) -> tuple[bytes, int]:
        znode = await client.get("/kept")
        return znode.data, await taken(client)

    before = asyncio.run(served(config_path, write))

    result = recover(config_path, "--yes", "--by", "ops", "--reason", "a test\nof two lines")

    assert result.exit_code == 0, result.output
    data, token = asyncio.run(served(config_path, read))
    assert data == b"as it was"
    assert token > before + NUMBERS_SKIPPED
    note = json.loads((tmp_path / "data" / "recovered").read_text())
    assert (note["by"], note["reason"]) == ("ops", "a test\nof two lines")
    assert note["zxid"] >= note["zxid_before"] + NUMBERS_SKIPPED
    assert (tmp_path / "data.before-recovery-1" / "owner").exists()


def test_no_token_comes_twice_when_a_recovery_is_undone_and_repeated(
    config_path: Path, tmp_path: Path
) -> None:
    """The former data begin again: above all that was given out since the first time."""
    asyncio.run(served(config_path, taken))
    assert recover(config_path, "--yes", "--by", "ops", "--reason", "first").exit_code == 0
    first = asyncio.run(served(config_path, taken))

    (tmp_path / "data").rename(tmp_path / "data.undone")
    (tmp_path / "data.before-recovery-1").rename(tmp_path / "data")
    assert recover(config_path, "--yes", "--by", "ops", "--reason", "again").exit_code == 0

    assert asyncio.run(served(config_path, taken)) > first


@pytest.mark.parametrize(
    ("highest", "wall_ms", "first"),
    [
        (5, 1_800_000_000_000, 1_800_000_000_000_000),
        (5, 0, 5 + NUMBERS_SKIPPED),
        (1_800_000_000_000_000, 1_800_000_000_000, 1_800_000_000_000_000 + NUMBERS_SKIPPED),
        (5, 10**18, 2**52),
    ],
    ids=["by the clock", "a clock that is late", "a moment later", "a clock that is far ahead"],
)
def test_numbers_begin_again_above_those_of_every_earlier_time(
    highest: int, wall_ms: int, first: int
) -> None:
    """By the time of day, and far above the data's own whatever the clock says."""
    assert continued(highest, wall_ms) == first


def test_no_number_comes_twice_whichever_data_begin_again_and_when() -> None:
    """Those of any time, also of after a recovery a second or an hour ago."""
    chance = random.Random(7)
    for _ in range(50):
        wall_ms, highest, left = 1_800_000_000_000, 5, [5]
        for _ in range(12):
            wall_ms += chance.choice((1_000, 60_000, 3_600_000, 30 * 86_400_000))
            data = chance.choice(left)
            first = continued(data, wall_ms)
            assert first > highest, f"from {data} at {wall_ms}, {highest} was given out"
            highest = first + chance.randrange(10_000)
            left += [first, highest]


def test_a_clock_that_is_late_gives_other_numbers_each_second_all_the_same() -> None:
    """From data whose numbers are those of a later time."""
    highest = 1_900_000_000_000_000
    first, later = [continued(highest, 1_800_000_000_000 + ms) for ms in (0, 1_000)]
    assert first >= highest + NUMBERS_SKIPPED
    assert later == first + 1_000_000


def test_who_lost_the_last_token_comes_back_in(config_path: Path) -> None:
    """Access rights are off; identities and roles are there, and a token can be added again."""

    async def lose(client: Any) -> None:
        await client.init_access()

    async def shut_out(client: Any) -> str:
        with pytest.raises(AuthFailedError) as caught:
            await client.get("/")
        return caught.value.code

    async def come_back(client: Any) -> tuple[bool, list[str]]:
        identities = await client.identities()
        return (await client.access()).is_on, [each.name for each in identities]

    asyncio.run(served(config_path, lose))
    assert asyncio.run(served(config_path, shut_out)) == "AuthFailed"

    result = recover(config_path, "--yes", "--by", "o", "--reason", "lost", "--access-off")

    assert result.exit_code == 0, result.output
    assert asyncio.run(served(config_path, come_back)) == (False, ["admin"])


def test_no_token_of_a_history_that_was_left_is_granted_again() -> None:
    """Two histories part, and each gives out the same numbers. The cluster begins again from one:
    a condition of the other names no grant there, and who waited is never granted under them."""
    kept, other = Room(), Room()
    for room in (kept, other):
        room.apply(OpenSession("s1", 5_000))
        room.apply(OpenSession("s2", 5_000))
    held = kept.enter("s1", "pay")
    kept.enter("s2", "pay")
    lost = other.enter("s2", "pay")
    assert lost[1] == held[1], "a token twice"

    at = Position(kept.index, 1)
    at, ended = begin_again(MachineReplica(kept.machine), at, 9, by="ops", reason="two disks")

    assert ended == 2
    kept.index = at.index
    kept.restored.restore(kept.machine.snapshot())
    zxid = kept.machine.zxid
    late = kept.apply(Create("/late", b""), HeldCondition("/locks/pay", lost[1]))
    assert late.refusal is not None
    assert kept.machine.session_count == 0
    assert kept.holder("pay") is None
    first = kept.machine.locks.history(GrantQuery("/locks/pay"))[0]
    assert first.reason == "the cluster was begun again by ops: two disks"
    kept.apply(OpenSession("s3", 5_000))
    assert kept.enter("s3", "pay")[1] > zxid > NUMBERS_SKIPPED


def test_without_yes_nothing_is_changed(config_path: Path, tmp_path: Path) -> None:
    """It says what is there, so that the data of all members can be compared."""
    asyncio.run(served(config_path, taken))
    files = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}

    result = recover(config_path)

    assert result.exit_code == 0, result.output
    assert "member '1' of cluster 'coordinator', has its vote; last term 1" in result.output
    assert "Nothing was changed" in result.output
    assert "This machine's clock says 20" in result.output
    assert files == {path: path.read_bytes() for path in files}
    assert {path.name for path in tmp_path.iterdir()} == {"data", "member.toml"}


def test_a_term_that_was_driven_to_its_end_is_repaired(config_path: Path, tmp_path: Path) -> None:
    """No election is possible with it."""
    asyncio.run(served(config_path, taken))
    log = str(tmp_path / "data" / "log")
    state = term.load(OsDisk(), log)
    assert state is not None
    absurd = term.TermState(
        term=INTEGER_MAX,
        voted_for=None,
        first_sequence=state.first_sequence,
        last_sequence=state.last_sequence,
    )
    term.save(OsDisk(), log, absurd)

    result = recover(config_path, "--yes", "--by", "ops", "--reason", "forged terms")

    assert result.exit_code == 0, result.output
    assert str(INTEGER_MAX) in result.output
    assert asyncio.run(served(config_path, taken)) > NUMBERS_SKIPPED
    found = term.load(OsDisk(), log)
    assert found is not None
    assert found.term < 10


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--yes",), "--yes needs --by WHO and --reason WHY"),
        (("--yes", "--by", "ops"), "--yes needs --by WHO and --reason WHY"),
    ],
)
def test_who_and_why_are_asked_for(
    config_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    """They are kept with the data, and said in the log at each start."""
    asyncio.run(served(config_path, taken))

    result = recover(config_path, *arguments)

    assert result.exit_code == 2
    assert expected in result.output


def test_a_member_that_runs_is_refused(config_path: Path) -> None:
    """Its directory is in use."""

    async def try_it(_client: Any) -> Result:
        return await asyncio.to_thread(recover, config_path)

    result = asyncio.run(served(config_path, try_it))

    assert result.exit_code != 0
    assert "another process uses this directory" in result.output


def test_an_empty_directory_is_refused(config_path: Path) -> None:
    """There is nothing to begin with."""
    result = recover(config_path)

    assert result.exit_code != 0
    assert "expected the data of a member, found none" in result.output


def test_a_recovery_that_died_between_its_renames_is_no_empty_directory(
    config_path: Path, tmp_path: Path
) -> None:
    """An empty member would count from 1 again, and give out each token a second time."""
    asyncio.run(served(config_path, taken))
    assert recover(config_path, "--yes", "--by", "ops", "--reason", "a test").exit_code == 0
    data, new = tmp_path / "data", tmp_path / "data.recovered"
    data.rename(new)

    for is_there in (False, True):
        if is_there:
            data.mkdir(mode=0o700)  # by a supervisor
        with pytest.raises(StorageError, match=r"interrupted: rename .*/data\.recovered to"):
            asyncio.run(served(config_path, taken))
        assert "a recovery that was interrupted" in recover(config_path).output

    data.rmdir()
    new.rename(data)
    assert asyncio.run(served(config_path, taken)) > NUMBERS_SKIPPED


def test_a_recovery_is_repeated_before_a_start(config_path: Path, tmp_path: Path) -> None:
    """By who forgot an option, for example; the data of before keep their names."""
    asyncio.run(served(config_path, taken))
    arguments = "--yes", "--by", "ops", "--reason", "a test"
    assert recover(config_path, *arguments).exit_code == 0

    assert "Nothing was changed" in recover(config_path).output
    again = recover(config_path, *arguments, "--access-off")

    assert again.exit_code == 0, again.output
    assert (tmp_path / "data.before-recovery-2").exists()
    assert asyncio.run(served(config_path, taken)) > NUMBERS_SKIPPED


def test_an_audit_log_that_cannot_be_written_stops_a_recovery_before_it_begins(
    config_path: Path, tmp_path: Path
) -> None:
    """It must not be done and reported as failed, and not be done without its line."""
    log = tmp_path / "audit.jsonl"
    with config_path.open("a") as file:
        file.write(f'[audit]\ntarget = "file"\nfile = "{log}"\n')
    asyncio.run(served(config_path, taken))
    log.chmod(0o666)
    arguments = "--yes", "--by", "ops", "--reason", "a test"

    refused = recover(config_path, *arguments)

    assert refused.exit_code == 2
    assert "chmod go-w" in refused.output
    assert not list(tmp_path.glob("data.*"))
    log.chmod(0o600)
    assert recover(config_path, *arguments).exit_code == 0
    assert b"cluster.begun_again" in log.read_bytes()


def test_the_counts_of_quotas_follow_the_end_of_all_sessions() -> None:
    """What sessions and places counted against identities is free again; znodes still count."""
    room = QuotaRoom()
    room.quota("web", sessions=2, znodes=4, waiters=1).unwrap()
    room.do(Create("/kept"), room.web).unwrap()
    room.do(OpenSession("s1", 5_000), room.pay).unwrap()
    for each in ("s2", "s3"):
        room.do(OpenSession(each, 5_000), room.web).unwrap()
    room.enter("s1", room.pay).unwrap()
    room.enter("s2", room.web).unwrap()
    assert (room.used("web")[0], room.used("web")[3]) == (2, 1)

    at = Position(room.machine.applied_index, 1)
    assert begin_again(MachineReplica(room.machine), at, 9, by="ops", reason="a test")[1] == 3

    assert room.used("web")[:2] == (0, 1)
    assert room.used("web")[3] == 0
    assert kept(room.machine) == {k: dict(v) for k, v in recounted(room.machine).items()}
    fresh = StateMachine()
    fresh.restore(room.machine.snapshot())
    assert kept(fresh) == kept(room.machine)
    room.do(OpenSession("s4", 5_000), room.web).unwrap()
    room.enter("s4", room.web).unwrap()
