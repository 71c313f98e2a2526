"""The scripts: stories that play themselves on the stage, and say at the end whether it came out.

Each ends with what it must have come to; AssertionError (or a timeout) is a failed run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from coordinator.learn.film import Guess
from coordinator.learn.stage import LASTING_LEASE_S, LEASE_S, Stage

Script = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scripted:
    """One script: its name on the command line, its title, and what it needs."""

    name: str
    title: str
    play: Script
    needs_members: bool = False
    has_actors: bool = True

    @property
    def lease_s(self) -> float | None:
        """The lease of the script; None: the stage's own.

        A session of a second or two may end while members elect, as it should: then its client
        knows of no answer in time. Where members are killed or cut off, that is not the story.
        """
        return LASTING_LEASE_S if self.needs_members else None


class UnexpectedEndError(AssertionError):
    """A story that did not come out as it must."""


async def freeze_ray(stage: Stage) -> None:
    """A is frozen for longer than its lease; B writes; A wakes and writes."""
    stage.acquire("A")
    await stage.actors["A"].expect("holds")
    await stage.until(lambda state: bool(state["lock"].get("holder") == "A"), "A to hold")
    stage.explain("A has looked: it holds the lock. It is about to write. Now it is frozen.")
    b_has_written = asyncio.Event()
    stage.freeze("A", at_least_until=b_has_written)
    stage.acquire("B")
    stage.write("A")
    await stage.actors["B"].expect("holds")
    await stage.until(lambda state: bool(state["lock"].get("holder") == "B"), "B to hold")
    stage.write("B")
    await stage.actors["B"].expect("wrote")
    _guess_what_the_store_does(stage)
    b_has_written.set()
    await stage.awake("A")
    line = await stage.actors["A"].expect("wrote", "refused")
    await stage.actors["A"].expect("lost")
    _expect_end_of_freeze_ray(stage, line)


def _guess_what_the_store_does(stage: Stage) -> None:
    answers = ("It takes it: A's write is the last one", "It refuses it: a higher token was seen")
    stage.recorder.step(
        "guess",
        "A is about to wake. The first thing that it does is the write that it had decided on.",
        question=Guess(
            "What does the store do with A's write?",
            answers,
            1 if stage.is_fenced else 0,
            "The store compares tokens, not clocks: A's is lower than B's."
            if stage.is_fenced
            else "The store checks nothing: it cannot know that the write is late.",
        ),
    )


def _expect_end_of_freeze_ray(stage: Stage, line: dict[str, Any]) -> None:
    a, b = (stage.actors[name].token for name in ("A", "B"))
    value, highest = stage.report.read()
    if stage.is_fenced:
        expect(line["what"] == "refused" and value == "by B", f"refused, found {line}, {value!r}")
        expect(a < b == highest, f"tokens {a} < {b} = highest, found {highest}")
        stage.explain(f"B's work is safe: token {a} came after {b} was seen. The lock could not "
                      f"have done this, for A was frozen after it had looked.")  # fmt: skip
    else:
        expect(line["what"] == "wrote" and value == "by A", f"by A, found {value!r}")
        stage.explain("The last write wins: the report is A's, though B holds the lock. B's work "
                      "is lost, and nothing has failed: no error, no log line. Only a store that "
                      "checks the token knows.")  # fmt: skip


async def lost_leader(stage: Stage) -> None:
    """The leader is killed while A holds; A goes on holding, and B gets it in its turn."""
    stage.acquire("A")
    await stage.actors["A"].expect("holds")
    stage.acquire("B")
    await stage.until(lambda state: "B" in state["lock"].get("queue", []), "B in the queue")
    await _until_one_leads(stage)
    killed = stage.kill_leader(
        question=Guess(
            "What becomes of A's lock?",
            ("It is lost: the leader kept it", "A holds on", "B gets it at once"),
            1,
            "The queue is in the log of a quorum. Only the lease is the leader's, and a new "
            "leader begins it again in full.",
        )
    )
    await stage.until(
        lambda state: any(
            each["role"] == "leader" and each["is_up"] and name != killed
            for name, each in state["members"].items()
        ),
        f"another member than {killed} to lead",
    )
    stage.write("A")
    await stage.actors["A"].expect("wrote")
    value, _ = stage.report.read()
    expect(value == "by A", f"A to go on writing, found {value!r}")
    expect(stage.state["lock"].get("holder") == "A", "A to go on holding")
    stage.release("A")
    await stage.actors["B"].expect("holds")
    stage.write("B")
    await stage.actors["B"].expect("wrote")
    expect(stage.report.read()[0] == "by B", "B to write in its turn")
    stage.heal()
    await _wait_for_all(stage)
    stage.explain("The lock survived its leader. A never lost it, and B came next, in order.")


async def cut_member(stage: Stage) -> None:
    """The leader is cut off: it grants nothing, the others elect one, the lock goes on."""
    stage.acquire("A")
    await stage.actors["A"].expect("holds")
    await _until_one_leads(stage)
    leader = stage.onlooker.leader_id
    stage.recorder.step("guess", f"Member {leader} leads. It is about to be cut off.",
                        question=Guess(
        "Two members are on one side, the leader alone is on the other. Who grants locks?",
        ("Both sides", "The two", "The old leader, it still leads"), 1,
        "A grant needs a quorum, two of three. The old leader may believe what it likes: it can "
        "grant nothing, and after its election timeout it says so.",
    ))  # fmt: skip
    stage.cut(leader)
    await stage.until(
        lambda state: any(
            each["role"] == "leader" and each["is_ready"] and name != leader
            for name, each in state["members"].items()
        )
        and not state["members"][leader]["is_ready"],
        f"another member than {leader} to lead, and {leader} to say that it is not ready",
    )
    stage.release("A")
    await stage.actors["A"].expect("released")
    stage.acquire("B")
    await stage.actors["B"].expect("holds")
    stage.write("B")
    await stage.actors["B"].expect("wrote")
    stage.explain(f"The two granted B. Member {leader} says that it is not ready, and why: a "
                  "minority serves no lock, and no read that could be wrong.")  # fmt: skip
    stage.heal()
    await _wait_for_all(stage)
    stage.explain("Healed: the old leader follows, and has what it missed.")


async def lease_and_hold(stage: Stage) -> None:
    """A works for longer than the lease: alive it keeps the lock, silent it does not."""
    stage.acquire("A")
    await stage.actors["A"].expect("holds")
    stage.explain(f"A works for longer than its lease of {stage.lease_s:g} s. It lives, so its "
                  "heartbeats extend the lease: watch the bar.")  # fmt: skip
    await asyncio.sleep(stage.lease_s * 1.3)
    expect(stage.state["lock"].get("holder") == "A", "A to hold longer than its lease")
    stage.write("A")
    await stage.actors["A"].expect("wrote")
    stage.explain("The lease bounds the silence of a holder, not the time it holds. To bound that, "
                  "give Lock a max_hold.")  # fmt: skip
    stage.release("A")
    await stage.actors["A"].expect("released")


async def long_pause(stage: Stage) -> None:
    """A short pause costs nothing; a long one costs the lock, and its holder learns of it first."""
    stage.acquire("A")
    await stage.actors["A"].expect("holds")
    stage.explain("A garbage collection of a fifth of the lease: nothing happens.")
    stage.freeze("A", LEASE_S * 0.2)
    await stage.awake("A")
    stage.actors["A"].cue("check")
    line = await stage.actors["A"].expect("held", "not held")
    expect(line["what"] == "held", f"A to hold after a short pause, found {line}")
    stage.explain(f"A asks its client, without a request: held, safe for {line['safe_ms']} ms.")
    stage.explain("Now one that is longer than the lease.")
    b_holds = asyncio.Event()
    stage.freeze("A", at_least_until=b_holds)
    stage.acquire("B")
    stage.actors["A"].cue("check")
    await stage.actors["B"].expect("holds")
    b_holds.set()
    await stage.awake("A")
    line = await stage.actors["A"].expect("held", "not held")
    expect(line["what"] == "not held", f"A to know that it lost, found {line}")
    stage.explain("The first thing that A's client says after the pause: not held. It counts its "
                  "lease from when it sent the last heartbeat, on a clock that ran meanwhile.")
    stage.release("B")
    await stage.actors["B"].expect("released")


async def _wait_for_all(stage: Stage) -> None:
    members = stage.place.members
    if members is None:
        return
    await stage.until(
        lambda state: all(each["is_ready"] for each in state["members"].values()),
        "every member to be ready",
    )


async def _until_one_leads(stage: Stage) -> None:
    await stage.until(
        lambda state: any(each["role"] == "leader" for each in state["members"].values()),
        "a member to lead",
    )


def expect(is_so: bool, what: str) -> None:
    """Raise UnexpectedEndError unless it ``is_so``."""
    if not is_so:
        raise UnexpectedEndError(f"expected {what}")


SCRIPTS = {
    each.name: each
    for each in (
        Scripted("freeze-ray", "The freeze ray: a late write meets a token", freeze_ray),
        Scripted("long-pause", "A long pause: who learns of the loss first", long_pause),
        Scripted("lease-and-hold", "The lease is not the time of holding", lease_and_hold),
        Scripted("lost-leader", "The leader is killed in the middle", lost_leader, True),
        Scripted("cut-member", "The leader is cut off", cut_member, True),
    )
}
"""Every script on the stage, by name."""
