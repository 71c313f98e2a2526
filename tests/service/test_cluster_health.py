"""How the cluster is: whichever member is asked says the same of each fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from coordinator.model.manual_holds import ROOT, ManualHold
from coordinator.model.members import ClusterHealth, LeaderSeen
from coordinator.service.reporting.cluster_health import (
    DISK_FREE_MIN,
    LAG_MAX,
    LEADERS_MAX,
    LEADERS_MS,
)
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Create
from tests.service.fake_cluster import STEP_MS, World, cluster, soon
from tests.service.test_divergence import FOUND_WITHIN_MS, filled, machine_of, znode_data

Fault = Callable[[World], Awaitable[None]]


async def asked(world: World, member_id: str) -> ClusterHealth:
    """Return what a member says now, and not what it has shared with those before."""
    await world.advance(10 * STEP_MS)
    return (await soon(world.members[member_id].reports.all())).health


def said(health: ClusterHealth) -> str:
    """Return all that ``status`` and the console show of it."""
    return " ".join([health.text, *(f"{each.text} {each.todo}" for each in health.findings)])


# --- the faults: of member 2, or of the whole cluster


async def full_disk(world: World) -> None:
    world.engines["2"].figures = {"is_disk_full": 1, "disk_free_bytes": 0}


async def nearly_full_disk(world: World) -> None:
    world.engines["2"].figures = {"disk_free_bytes": DISK_FREE_MIN - 1}


async def slow_disk(world: World) -> None:
    world.engines["2"].figures = {"is_disk_slow": 1}


async def certificate_expired(world: World) -> None:
    world.members["2"].warnings = lambda: ("member 2: the certificate of [http] expired at noon",)


async def certificate_expires(world: World) -> None:
    world.members["2"].warnings = lambda: ("member 2: the certificate of [http] expires at noon",)


async def member_away(world: World) -> None:
    world.fault = lambda one, other, _: "unsent" if "2" in (one, other) else None


async def member_refused(world: World) -> None:
    why = "members 1 and 2 differ in the secret"
    world.engines["1"].refused, world.engines["2"].refused = {"2": why}, {"1": why}


async def member_lagging(world: World) -> None:
    world.engines["2"].is_applying = False
    for number in range(LAG_MAX + 1):
        operation = Create(f"/n{number}")
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))


async def state_differs(world: World) -> None:
    await filled(world)
    znode_data(machine_of(world, "2"))
    await world.advance(FOUND_WITHIN_MS)


async def no_secret(world: World) -> None:
    problem = "member 2: the former secret stays in use: secret_file: No such file"
    world.members["2"].warnings = lambda: (problem,)


async def many_elections(world: World) -> None:
    for number in range(LEADERS_MAX):
        world.elect(str(number % 3 + 1))


async def many_elections_seen(world: World) -> None:
    for number in range(LEADERS_MAX):
        for each in world.members.values():
            at_ms = each.reports._clock.wall_ms()
            each.reports._elections.append(LeaderSeen(at_ms, None, term=number, cause="pause"))
        world.elect(str(number % 3 + 1))


async def hold_overdue(world: World) -> None:
    hold = ManualHold(by="ann", note="a long night", alarm_after_ms=1_000).to_bytes()
    for operation in (Create(ROOT), Create(f"{ROOT}/order", hold)):
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))
    await world.advance(12_000)


FAULTS: dict[Fault, str] = {
    full_disk: "The disk of member 2 is full: it accepts no writes.",
    nearly_full_disk: "Member 2 has 512.0 MiB of disk left.",
    slow_disk: "The disk of member 2 is slow",
    certificate_expired: "Member 2: the certificate of [http] expired at noon.",
    certificate_expires: "Member 2: the certificate of [http] expires at noon.",
    member_away: "Member 2 does not answer; no other may fail.",
    member_refused: "Members 1 and 2 differ in the secret.",
    member_lagging: f"Member 2 is {LAG_MAX + 1} entries behind.",
    state_differs: "Member 2 has stopped answering: its state differs from that of members 1, 3",
    no_secret: "Member 2: the former secret stays in use",
    many_elections: f"The leader has changed {LEADERS_MAX + 1} times in ten minutes.",
    many_elections_seen: (
        f"times in ten minutes; members saw {3 * LEADERS_MAX} times that they did not run"
    ),
    hold_overdue: "1 lock is held by hand for longer than planned",
}


@pytest.mark.parametrize("member_id", ["1", "2", "3"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
async def test_whichever_member_is_asked_names_the_fault(fault: Fault, member_id: str) -> None:
    """And never that all is well."""
    async with cluster(3) as world:
        assert (await asked(world, member_id)).level == "good"
        await fault(world)
        health = await asked(world, member_id)

    expected = FAULTS[fault]
    if fault is member_away and member_id == "2":  # what is seen by the one that is cut off
        expected = "Members 1, 3 do not answer; there is no quorum."
    assert health.level in ("warn", "bad")
    assert expected in said(health)
    assert "All is well" not in said(health)
    assert health.text.startswith(health.findings[0].text)


async def test_all_is_well_only_if_nothing_was_found() -> None:
    """A protection that the configuration turns off is a note, said once for all members."""
    async with cluster(3) as world:
        well = await asked(world, "3")
        for member in world.members.values():
            member.off = ("http.tls is off: everybody may read",)
        off = await asked(world, "3")

    lead = "ember 1 leads in term 1, 3 members answer, and one may fail."
    assert (well.level, well.text, well.findings) == ("good", f"All is well: m{lead}", ())
    assert (off.level, off.text) == ("note", f"M{lead}")
    assert [each.text for each in off.findings] == ["Http.tls is off: everybody may read."]


async def test_the_worst_is_said_first_and_the_rest_is_counted() -> None:
    """What two members find alike is one finding."""
    async with cluster(3) as world:
        await slow_disk(world)
        await hold_overdue(world)
        world.engines["3"].figures = {"is_disk_full": 1}
        health = await asked(world, "1")

    assert health.text == (
        "The disk of member 3 is full: it accepts no writes. There are 2 things more."
    )
    assert [each.level for each in health.findings] == ["bad", "warn", "warn"]


async def test_changes_of_the_leader_are_forgotten_after_ten_minutes() -> None:
    """Each term counts once, though every member noticed it; a rolling restart is no warning."""
    async with cluster(3) as world:
        for number in range(LEADERS_MAX - 1):
            world.elect(str(number % 3 + 1))
        assert (await asked(world, "2")).level == "good"
        world.elect("3")
        assert (await asked(world, "2")).level == "warn"
        world.clock.advance(LEADERS_MS)
        assert (await asked(world, "2")).level == "good"


async def test_a_member_that_differed_is_well_again_once_it_answers() -> None:
    """Its former difference is not said of it for ever."""
    async with cluster(3) as world:
        await state_differs(world)
        assert "its state differs" in said(await asked(world, "1"))
        world.gone.clear()
        world.members["2"]._divergence.sentence = ""
        await asked(world, "1")
        world.fault = lambda one, other, _: "unsent" if "2" in (one, other) else None
        assert "its state differs" not in said(await asked(world, "1"))
