"""Group membership: which programs are there, and what can each of them do?

A dispatcher gives each task to a member that can do it, and watches the group. A member that gets
new abilities publishes them. One whose session was lost while it lives registers itself again,
under its name and with a higher token, so nobody takes it for the one that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coordinator.recipes import Group, GroupMember
from examples.stage import Stage, perform

Members = tuple[GroupMember, ...]


def able(members: Members, ability: str) -> list[str]:
    """Return the names of those that can do it."""
    return [each.name for each in members if ability in each.metadata["can"]]


def until(told: Iterator[Members], is_so: Callable[[Members], bool]) -> Members:
    """Follow the group until it is so."""
    for members in told:
        if is_so(members):
            return members
    raise AssertionError("a stream of members does not end")


def story(stage: Stage) -> None:
    with (
        stage.connect("dispatcher") as dispatcher,
        stage.connect("ann") as ann,
        stage.connect("bob", lease=4, timeout=2) as bob,
        Group(dispatcher, "workers").watch() as stream,
    ):
        told = iter(stream)
        painter = Group(ann, "workers").join("ann", metadata={"can": ["paint"]})
        Group(bob, "workers").join("bob", metadata={"can": ["paint", "print"]})
        both = until(told, lambda members: len(members) == 2)
        stage.say(f"To paint: {', '.join(able(both, 'paint'))}.")
        stage.say(f"To print: {', '.join(able(both, 'print'))}.")

        painter.update({"can": ["paint", "print"]})
        more = until(told, lambda members: able(members, "print") == ["ann", "bob"])
        stage.say(f"Ann learns to print: {', '.join(able(more, 'print'))}.")

        before = next(each.fencing_token for each in more if each.name == "bob")
        fault = stage.cluster.cut_off(bob)
        until(told, lambda members: len(members) == 1)
        stage.say("Bob is cut off until his session has ended: ann is alone.")
        fault.end()
        again = until(told, lambda members: len(members) == 2)
        after = next(each.fencing_token for each in again if each.name == "bob")
        stage.say(f"He is back by himself, token {before} then, {after} now: {after > before}.")


if __name__ == "__main__":
    perform(story)
