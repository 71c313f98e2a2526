"""Service discovery: where does the service run? What starts is listed, what dies disappears.

Each server registers its address for as long as its session lives. A load balancer watches: it is
told who joins and who leaves, and asks nothing again and again. A server that is to be stopped says
so first, so nobody is sent there any more; one that dies is gone when its session has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coordinator.recipes import Group, GroupMember
from examples.stage import Stage, perform

Members = tuple[GroupMember, ...]


def usable(members: Members) -> list[str]:
    """Return the addresses to which requests may be sent."""
    return [str(each.metadata["url"]) for each in members if each.state == "up"]


def until(told: Iterator[Members], is_so: Callable[[list[str]], bool]) -> str:
    """Follow what the balancer is told until it is so; return the addresses in words."""
    for members in told:
        if is_so(urls := usable(members)):
            return ", ".join(urls) or "nowhere"
    raise AssertionError("a stream of members does not end")


def story(stage: Stage) -> None:
    with (
        stage.connect("balancer") as balancer,
        stage.connect("server 1") as one,
        stage.connect("server 2", lease=5, timeout=2) as two,
        Group(balancer, "web").watch() as stream,
    ):
        told = iter(stream)
        stage.say(f"At first requests go {until(told, lambda urls: not urls)}.")
        first = Group(one, "web").join("1", metadata={"url": "10.0.0.1:80"})
        second = Group(two, "web").join("2", metadata={"url": "10.0.0.2:80"})
        stage.say(f"Two servers join: {until(told, lambda urls: len(urls) == 2)}.")
        assert second.fencing_token > first.fencing_token, "the later one has the higher token"

        stage.cluster.cut_off(two)
        stage.say("Server 2 dies, without a word.")
        stage.say(f"Its session ends: {until(told, lambda urls: len(urls) == 1)}.")

        first.report("draining", "a new release")
        stage.say(f"Server 1 drains: {until(told, lambda urls: not urls)}.")
        with Group(balancer, "web").join("3", metadata={"url": "10.0.0.3:80"}):
            stage.say(f"Server 3 takes over: {until(told, lambda urls: bool(urls))}.")
            first.drain(linger=stage.seconds(0.5))
            left = [each.name for each in Group(one, "web").members()]
            stage.say(f"Server 1 has left; registered: {', '.join(left)}.")


if __name__ == "__main__":
    perform(story)
