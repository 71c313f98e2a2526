"""Members that differ in what must be equal on all: they refuse each other, and say why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import MsgspecError
from msgspec.msgpack import encode

from coordinator.clock import ManualClock, SystemClock
from coordinator.errors import ConfigError, StorageError
from coordinator.node.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.raft.network.agreement import (
    FACTS_MAX,
    VALUE_BYTES_MAX,
    Agreement,
    Fact,
    Levels,
    ShownAgreement,
    check_facts,
    difference,
    facts_of_cluster,
    facts_of_raft,
)
from coordinator.raft.network.handshake import (
    HANDSHAKE_FRAME_BYTES_MAX,
    Acceptor,
    Dialer,
    HandshakeError,
    Identity,
)
from coordinator.raft.network.refusals import DISAGREEMENT_KEPT_MS, Disagreements
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.storage import ownership
from tests.raft.network.test_transport import SECRET, Network, shake, until
from tests.raft.simulated_cluster import ListReplica, Member, SimulatedCluster
from tests.raft.simulated_loop import run


def listing(*ids: str, port: int = 7170) -> ClusterConfig:
    return ClusterConfig(
        members=tuple(
            MemberAddress(
                i, client_url=f"http://h:{i}", member_host="127.0.0.1", member_port=port + int(i)
            )
            for i in ids
        )
    )


# --- the sentence


def said(own: Sequence[Fact], theirs: Sequence[Fact], peer_id: str = "2") -> str:
    """Return what member 1 says of another one."""
    return difference(Agreement(own), ShownAgreement.read(Agreement(theirs).shown()), "1", peer_id)


def test_equal_members_agree_whatever_the_order_of_their_lists() -> None:
    """The order of the list and the URLs of clients are nobody's business."""
    one = facts_of_cluster(listing("1", "2", "3"))
    moved = listing("3", "1", "2")
    urls = tuple(replace(each, client_url="https://elsewhere") for each in moved.members)

    assert said(one, facts_of_cluster(replace(moved, members=urls))) == ""


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (listing("1", "2", "3", "4"), "'1, 2, 3' on member 1, '1, 2, 3, 4' on member 4"),
        (listing("1", "2", "3", port=7180), "'127.0.0.1:7171' on member 1, '127.0.0.1:7181'"),
        (replace(listing("1", "2", "3"), name="other"), "the cluster's name: 'coordinator' on"),
    ],
)
def test_the_first_difference_is_one_sentence_with_both_sides(
    theirs: ClusterConfig, words: str
) -> None:
    """What differs, what it is here and there, and what to do."""
    sentence = said(facts_of_cluster(listing("1", "2", "3")), facts_of_cluster(theirs), peer_id="4")

    assert sentence.startswith("members 1 and 4 differ in the ")
    assert words in sentence
    assert "; " in sentence
    assert "\n" not in sentence


def test_a_fact_that_one_side_does_not_show_is_not_compared() -> None:
    """A later release may show more facts; an empty value is not known yet."""
    fact, more = Fact("a", value="1", advice="do this"), Fact("b", value="2", advice="do that")

    assert said((fact, more), (fact,)) == ""
    assert said((fact,), (fact, more)) == ""
    assert said((fact, more), (more._replace(value="3"),)) != ""
    assert said((fact._replace(value=""),), (fact,)) == ""
    assert said((fact,), (fact._replace(value=""),)) == ""


@pytest.mark.parametrize(
    ("own", "theirs", "words"),
    [
        ((1, 1, 1), (1, 2, 1), ""),
        ((1, 2, 1), (1, 1, 0), ""),
        ((0, 0, 0), (2, 3, 2), ""),
        ((1, 2, 2), (1, 1, 1), "level 2, and the release of member 2 (0.2.0) reads"),
        ((1, 1, 1), (1, 2, 2), "level 2, and the release of member 1 (0.1.0) reads"),
        ((2, 3, 0), (1, 2, 1), "(0.1.0) reads levels 2 to 3; start it with an"),
    ],
)
def test_a_member_that_does_not_read_the_level_of_the_state_is_refused(
    own: tuple[int, int, int], theirs: tuple[int, int, int], words: str
) -> None:
    """Both sides say which of the two, and whether to start it with a newer or an older release."""
    here = Agreement(levels=Levels(*own), release="0.1.0")
    there = Agreement(levels=Levels(*theirs), release="0.2.0")

    sentence = difference(here, ShownAgreement.read(there.shown()), "1", "2")
    turned = difference(there, ShownAgreement.read(here.shown()), "2", "1")

    assert words in sentence
    assert bool(sentence) == bool(words)
    assert sentence == turned


def test_a_strangers_text_cannot_forge_a_line_of_the_log() -> None:
    """Control characters are escaped, and long text is cut."""
    sentence = said(
        (Fact("a", value="1", advice=""),), (Fact("a", value="\x1b[2J\n" * 500, advice=""),)
    )

    assert sentence.isprintable()
    assert len(sentence) < 500


def test_facts_are_bounded() -> None:
    """So many, so long, all different: more is refused before a member starts."""
    facts = [Fact(str(number), value="", advice="") for number in range(FACTS_MAX)]
    check_facts(facts)
    for wrong in (
        [*facts, Fact("more", value="", advice="")],
        [Fact("a", value="", advice=""), Fact("a", value="", advice="")],
        [Fact("a", value="x" * (VALUE_BYTES_MAX + 1), advice="")],
        [Fact(str(number), value="x" * VALUE_BYTES_MAX, advice="") for number in range(20)],
        [Fact("", value="x", advice="")],
    ):
        with pytest.raises(ConfigError):
            check_facts(wrong)


def test_the_longest_list_of_members_fits() -> None:
    """Nine members with the longest names there may be."""
    members = tuple(
        MemberAddress(
            f"{n}{'i' * 63}", client_url="http://h", member_host="h" * 253, member_port=65_535
        )
        for n in range(9)
    )
    facts = (*facts_of_cluster(ClusterConfig(members=members)), *facts_of_raft(RaftConfig()))
    check_facts(facts)
    identity = Identity("c", member_id="1", secret=SECRET, agreement=Agreement(facts))
    dialer, acceptor = (
        Dialer(identity, "2", b"d" * 32),
        Acceptor(replace(identity, member_id="2"), b"a" * 32),
    )

    challenge = acceptor.receive(dialer.begin())
    assert challenge is not None
    proof = dialer.receive(challenge)
    assert proof is not None
    assert len(proof) <= HANDSHAKE_FRAME_BYTES_MAX


_WRONG = (
    None, [], "ab", {}, {"facts": None}, {"facts": [["a"]]}, {"facts": [["a", 1]]},
    {"facts": [[b"a", "b"]]}, {"facts": [["a", "b"]] * (FACTS_MAX + 1)},
    {"facts": [], "levels": [1, 2]}, {"facts": [], "levels": [1, 2, -1]},
    {"facts": [], "release": "r" * 65},
)  # fmt: skip


@pytest.mark.parametrize("wrong", _WRONG)
def test_only_names_and_values_are_shown(wrong: object) -> None:
    """What is not is refused."""
    with pytest.raises(MsgspecError):
        ShownAgreement.read(encode(wrong))


def test_what_a_later_release_shows_besides_is_skipped() -> None:
    """Names are added to what is shown, and none changes its meaning."""
    later = {"facts": [["a", "1"]], "mood": "good", "levels": [1, 2, 1], "release": "0.2.0"}

    assert ShownAgreement.read(encode(later)) == ShownAgreement(
        (("a", "1"),), levels=(1, 2, 1), release="0.2.0"
    )


def test_facts_are_under_the_proofs() -> None:
    """Both sides come to the same end; a fact changed on the way breaks the proof."""
    mine, theirs = (Fact("a", value="1", advice="x"),), (Fact("a", value="2", advice="y"),)
    one, two = (
        Identity("c", member_id="1", secret=SECRET, agreement=Agreement(mine)),
        Identity("c", member_id="2", secret=SECRET, agreement=Agreement(theirs)),
    )
    dialer, acceptor = Dialer(one, "2", b"d" * 32), Acceptor(two, b"a" * 32)

    shake(dialer, acceptor)

    assert dialer.disagreement.endswith("differ in a: '1' on member 1, '2' on member 2; x")
    assert acceptor.disagreement.endswith("differ in a: '2' on member 2, '1' on member 1; y")


@dataclass(frozen=True, slots=True)
class Garbage(Agreement):
    """What a member shows that has a defect."""

    data: bytes = b""

    def shown(self) -> bytes:
        return self.data


@pytest.mark.parametrize(
    "data", [b"", b"\x81\xa1x" + b"\x91" * 5_000 + b"\xc0", b"\x81\xa7release\xa1\xff"]
)
def test_what_is_shown_that_cannot_be_read_ends_the_handshake(data: bytes) -> None:
    """Nested too deep, or no text: it ends with the sentence that any garbage gets."""
    shown = Identity("c", member_id="1", secret=SECRET, agreement=Garbage(data=data))
    own = Identity("c", member_id="2", secret=SECRET)

    with pytest.raises(HandshakeError, match="expected a list of facts of '1'"):
        shake(Dialer(shown, "2", b"d" * 32), Acceptor(own, b"a" * 32))


def test_a_refusal_is_forgotten_when_nobody_tries_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says it once a minute; the status as long as somebody tries."""
    clock = ManualClock()
    found = Disagreements(clock)
    with caplog.at_level(logging.ERROR):
        for _ in range(0, 59_000, 500):
            found.add("2", "why")
            clock.advance(500)
    assert len(caplog.records) == 1
    assert found.all() == {"2": "why"}
    clock.advance(DISAGREEMENT_KEPT_MS + 1)
    assert found.all() == {}


# --- members


def forget_list(member: Member) -> None:
    """Have the member's directory say no more of which list it is."""
    owner = ownership.load(member.disk, "data")
    assert owner is not None
    ownership.save(member.disk, "data", replace(owner, member_ids=()))


@pytest.mark.parametrize("ids", [("1", "2", "3"), ("1", "2", "3", "4", "5", "6"), ("1", "2")])
def test_a_member_with_another_list_than_its_data_refuses_to_start(ids: tuple[str, ...]) -> None:
    """Cut off from all who know better, a majority of a shorter list would have a leader."""

    async def live() -> None:
        cluster = await SimulatedCluster(5, seed=3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        await cluster.equal()
        for member in cluster.members:
            await member.kill(is_power_cut=False)
        for member in cluster.members[:2]:
            member.config = listing(*ids)
            with pytest.raises(StorageError, match="found those of one of 1, 2, 3, 4, 5"):
                await member.start()
            member.is_up = False

            member.config = cluster.config
        for member in cluster.members:
            await member.start()
        leader = await cluster.leader()
        assert await cluster.equal() == [b"before"]
        await cluster.stop()

    run(live())


def test_the_list_may_be_corrected_as_long_as_there_was_no_leader() -> None:
    """A wrong list at the very first start costs a restart and no data."""

    async def live() -> None:
        cluster = SimulatedCluster(3, seed=4)
        first = cluster.members[0]
        first.config = replace(cluster.config, members=cluster.config.members[:2])
        await cluster.start()
        await asyncio.sleep(5)
        assert cluster.leaders() == []

        await first.kill(is_power_cut=False)
        first.config = cluster.config
        await first.start()

        await cluster.leader()
        await cluster.stop()

    run(live())


def test_two_quorums_of_different_lists_do_not_both_lead() -> None:
    """A cluster of five, two of which are started again with a list of three: they stay out."""

    async def live() -> None:
        cluster = await SimulatedCluster(5, seed=3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        await cluster.equal()
        wrong = [each for each in cluster.members if each is not leader][:2]
        right = [each for each in cluster.members if each not in wrong]
        ids = (*(each.member_id for each in wrong), leader.member_id)
        addresses = tuple(each for each in cluster.config.members if each.member_id in ids)
        for member in wrong:
            await member.kill(is_power_cut=False)
            forget_list(member)
            member.config = replace(cluster.config, members=addresses)
            await member.start()

        await asyncio.sleep(20)
        leader = await cluster.leader(right)
        await leader.engine.propose(b"after")

        for member in wrong:
            status = member.engine.status()
            assert status.leader_id is None
            assert not status.is_ready
            assert set(status.refused) == {each.member_id for each in right}
            assert all("the list of members" in why for why in status.refused.values())
            assert member.engine.metrics()["members_refused"] == 3
        assert cluster.leaders() == [leader]
        assert leader.replica.commands == [b"before", b"after"]
        await cluster.stop()

    run(live())


def test_a_new_cluster_with_two_lists_has_no_leader() -> None:
    """The first leader needs all of its list, and some of each list refuse each other."""

    async def live() -> None:
        cluster = SimulatedCluster(5, seed=4)
        for member in cluster.members[:2]:
            member.config = replace(cluster.config, members=cluster.config.members[:3])
        await cluster.start()

        await asyncio.sleep(20)

        assert cluster.leaders() == []
        await cluster.stop()

    run(live())


def test_a_member_that_differs_is_met_when_it_is_put_right() -> None:
    """One fact that differs keeps a member out; started with the right one it takes part."""

    async def live() -> None:
        cluster = SimulatedCluster(3, seed=5)
        for member in cluster.members:
            member.facts = (Fact("limits.znodes_max", value="20", advice="change it"),)
        await cluster.start()
        await cluster.leader()
        last = cluster.members[2]
        await last.kill(is_power_cut=False)
        last.facts = (Fact("limits.znodes_max", value="10", advice="change it with a command"),)
        await last.start()
        await asyncio.sleep(5)
        assert last.engine.status().leader_id is None
        assert all("znodes_max" in why for why in last.engine.status().refused.values())

        await last.kill(is_power_cut=False)
        last.facts = cluster.members[0].facts
        await last.start()

        await cluster.until(lambda: last.engine.status().is_ready)
        assert not last.engine.status().refused
        await cluster.stop()

    run(live())


async def test_both_sides_say_over_sockets_what_differs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A list of three and a list of two with the same secret: no link, one line on each side."""
    network = Network(tmp_path, count=3)
    engines = []
    for number, cluster in (
        (1, network.cluster),
        (2, replace(network.cluster, members=network.cluster.members[:2])),
    ):
        engine = PySyncObjEngine(
            cluster,
            MemberConfig(member_id=str(number), data_dir=str(tmp_path / f"member-{number}")),
            network.raft,
            clock=SystemClock(),
            transport=network.make(number, members=cluster.members),
        )
        await engine.start(ListReplica())
        engines.append(engine)
    one, two = engines

    await until(lambda: "2" in one.status().refused and "1" in two.status().refused)
    await asyncio.sleep(0.3)

    assert one.status().refused["2"] == (
        "members 1 and 2 differ in the list of members: '1, 2, 3' on member 1, '1, 2' on member 2;"
        " write the same [[cluster.members]] into both configurations, then restart the wrong one"
    )
    assert not one.status().is_reachable["2"]
    assert not two.status().is_reachable["1"]
    refused = [each.message for each in caplog.records if " refused: members" in each.message]
    assert len(refused) == 2, "more tries than lines"
    for engine in engines:
        await engine.stop()
    await network.stop()
