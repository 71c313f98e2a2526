"""What ``coordinator doctor`` says: each fault of a member is found, named, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.errors import NoAuthError
from coordinator.model.access import NOBODY
from coordinator.model.diagnosis import CheckResult
from coordinator.node.config import Config
from coordinator.service.reporting.checks import DAY_MS, Examined, Look, checks_of
from coordinator.service.reporting.examination import SHARED_MS, shared_settings
from tests.service.fake_cluster import World, cluster, soon

WELL = Look(
    members=tuple(
        Examined(
            member_id=member_id,
            wall_ms=1_000,
            version="0.1.0",
            is_compiled=True,
            round_trips_ms={other: 1 for other in "123" if other != member_id},
            sync_ms=2.0,
            files=100,
            files_max=65_536,
            expires_ms={"members": 1_000 + 60 * DAY_MS},
            used={"sessions_max": (10, 50_000), "znodes_max": (700_000, 1_000_000)},
            settings={"raft.heartbeat_interval_ms": "133"},
        )
        for member_id in "123"
    ),
    clocks_ms={"1": (0, 0), "2": (3, 1), "3": (-4, 1)},
    round_trip_ms_max=40,
)


def changed(**facts: object) -> Look:
    """Return ``WELL`` with member 2 changed."""
    one, two, three = WELL.members
    return replace(WELL, members=(one, replace(two, **facts), three))


def test_of_what_is_well_each_check_says_what_it_looked_at() -> None:
    """An operator sees what was examined, and in numbers."""
    assert [(each.check, each.level, each.text) for each in checks_of(WELL)] == [
        ("clocks", "good", "The members' clocks differ by 7 ms at most."),
        ("disks", "good", "One sync of a disk takes 2.0 ms."),
        ("network", "good", "A round trip between members takes 1 ms."),
        ("files", "good", "A member has up to 100 files open, and may open 65536."),
        ("releases", "good", "Release 0.1.0 runs everywhere, compiled."),
        ("settings", "good", "Members agree in 1 settings."),
        ("certificates", "good", "No certificate expires within 60 days."),
        ("limits", "good", "The fullest limit is znodes_max, with 70 % used."),
    ]


@pytest.mark.parametrize(
    ("look", "check", "level", "text"),
    [
        (
            replace(WELL, clocks_ms={"1": (0, 0), "2": (90_000, 2), "3": (5, 1)}),
            "clocks", "warn", "The clock of member 2 is 1 min 30 s ahead of that of member 1.",
        ),
        (
            changed(sync_ms=31.44),
            "disks", "warn", "One sync of the disk of member 2 takes 31.4 ms.",
        ),
        (
            changed(round_trips_ms={"1": 1, "3": 55}),
            "network", "warn", "A round trip from member 2 to member 3 takes 55 ms.",
        ),
        (
            changed(round_trips_ms={"1": None, "3": 1}),
            "network", "warn", "Member 2 had no answer from member 1.",
        ),
        (changed(files_max=1024), "files", "warn", "Member 2 may open 1024 files only."),
        (changed(files=60_000), "files", "warn", "Member 2 has 60000 of 65536 files open."),
        (
            changed(version="0.2.0"),
            "releases", "warn", "Members run different releases: 0.1.0 on 1, 3; 0.2.0 on 2.",
        ),
        (
            changed(is_compiled=False),
            "releases", "note",
            "All members run release 0.1.0, but not the same build: compiled on 1, 3; pure on 2.",
        ),
        (
            changed(settings={"raft.heartbeat_interval_ms": "100"}),
            "settings", "warn", "Members differ in raft.heartbeat_interval_ms: 133 on 1, 3; 100 on"
            " 2.",
        ),
        (
            changed(expires_ms={"clients": 1_000 + 3 * DAY_MS}),
            "certificates", "warn",
            "The certificate that member 2 shows to clients expires in 3 days.",
        ),
        (
            changed(expires_ms={"clients": 999}),
            "certificates", "warn", "The certificate that member 2 shows to clients has expired.",
        ),
        (
            changed(used={"sessions_max": (41_000, 50_000)}),
            "limits", "warn", "41,000 of 50,000 are used of sessions_max, 82 %.",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_what_to_do(look: Look, check: str, level: str, text: str) -> None:
    """It is the only check that is not well, and says so instead of its good sentence."""
    wrong = [each for each in checks_of(look) if each.level != "good"]

    assert [(each.check, each.level, each.text) for each in wrong] == [(check, level, text)]
    assert wrong[0].todo
    assert check not in [each.check for each in checks_of(look) if each.level == "good"]


def test_clocks_are_not_blamed_for_the_way_of_the_answer() -> None:
    """A round trip of three seconds may make a clock look 1.5 s ahead."""
    look = replace(WELL, clocks_ms={"1": (0, 0), "2": (1_500, 1_501), "3": (0, 1)})
    assert [each.level for each in checks_of(look) if each.check == "clocks"] == ["good"]


def test_no_setting_of_one_machine_alone_is_compared() -> None:
    """Addresses, names of files and where a member listens may differ; the rest should not."""
    config = Config()
    other = replace(
        config,
        member=replace(config.member, member_id="2", data_dir="elsewhere"),
        http=replace(config.http, bind_port=1, bind_host="0.0.0.0", tls_cert_file="c.pem"),
        log=replace(config.log, level="debug"),
        audit=replace(config.audit, file="a.log"),
    )
    assert shared_settings(other) == shared_settings(config)
    raised = replace(config, raft=replace(config.raft, heartbeat_interval_ms=50))
    assert shared_settings(raised) != shared_settings(config)


async def examined(world: World, member_id: str = "2") -> dict[str, CheckResult]:
    """Return what an operator is shown by a member, by check."""
    found = await soon(world.members[member_id].examinations.checks(NOBODY))
    return {each.check: each for each in found}


async def test_any_member_examines_them_all() -> None:
    """Clocks, connections and settings of three, asked for at a follower."""
    async with cluster() as world:
        found = await examined(world)

    assert found["clocks"].text == "The members' clocks differ by less than 1 ms at most."
    assert found["network"].text == "A round trip between members takes less than 1 ms."
    assert found["settings"].text.startswith("Members agree in ")
    assert {each.level for each in found.values()} == {"good"}


async def test_those_who_ask_at_once_share_an_examination() -> None:
    """It costs each member a few round trips to each other one; later ones ask again."""
    async with cluster() as world:
        await examined(world)
        before = len(world.requests)
        await examined(world)
        shared = len(world.requests)
        await world.advance(SHARED_MS)
        await examined(world)

        assert shared == before
        assert len([kind for _, _, kind in world.requests[before:] if kind == "examine"]) == 2


async def test_a_member_that_is_cut_off_is_missed_by_the_others() -> None:
    """Both others say that they have no answer from it, and nothing waits for ever."""
    async with cluster() as world:
        world.fault = lambda one, other, _: "unsent" if "3" in (one, other) else None
        found = await soon(world.members["2"].examinations.checks(NOBODY))

    assert [each.text for each in found if each.check == "network"] == [
        "Member 1 had no answer from member 3.",
        "Member 2 had no answer from member 3.",
    ]


async def test_an_examination_is_for_operators() -> None:
    """It costs all members something."""
    async with cluster() as world:
        machine = world.members["2"]._replica.machine
        machine.access.is_on = True
        with pytest.raises(NoAuthError):
            await soon(world.members["2"].examinations.checks(NOBODY))
