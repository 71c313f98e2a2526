"""Two settings that belong together change at once: each watcher sees both or neither.

Written one after the other, as two znodes, the new host is seen with the old password. As a
configuration they are one version. All watchers see the versions in the same order, never half of
one, and a refused change is seen by nobody.
"""

from __future__ import annotations

import threading

from coordinator import Client
from coordinator.errors import BadArgumentsError
from coordinator.recipes import Configuration
from examples.stage import Stage, perform

VERSIONS = 6
NODES = ("node 1", "node 2", "node 3")


def one_by_one(stage: Stage, writer: Client, reader: Client) -> None:
    """Write two znodes, one after the other, and read both in between."""
    writer.create("/host", b"db-1")
    writer.create("/password", b"of db-1")
    writer.set("/host", b"db-2")
    host, password = (reader.get(path).data.decode() for path in ("/host", "/password"))
    writer.set("/password", b"of db-2")
    stage.say(f"One by one, a node reads {host} with the password {password}: it cannot connect.")


def watch(client: Client, ready: threading.Barrier) -> list[tuple[int, bool]]:
    """Return the versions that this node sees, each with whether it is whole."""
    seen = []
    for snapshot in Configuration(client, "db").watch():
        if not seen:
            ready.wait()
        host, password = snapshot.values["host"], snapshot.values["password"]
        seen.append((snapshot.version, password == f"of {host}"))
        if snapshot.version == VERSIONS:
            return seen
    raise AssertionError("a stream of versions does not end")


def story(stage: Stage) -> None:
    with (
        stage.connect("operator") as operator,
        stage.connect(NODES[0]) as one,
        stage.connect(NODES[1]) as two,
        stage.connect(NODES[2]) as three,
    ):
        one_by_one(stage, operator, one)

        def whole(values: dict[str, str]) -> bool:
            return values["password"] == f"of {values['host']}"

        settings = Configuration(operator, "db", check=whole)
        settings.change({"host": "db-1", "password": "of db-1"})
        ready = threading.Barrier(1 + len(NODES))

        def change() -> list[tuple[int, bool]]:
            ready.wait()
            for number in range(2, VERSIONS + 1):
                settings.change({"host": f"db-{number}", "password": f"of db-{number}"})
                stage.wait(0.2)
            return []

        _, *seen = stage.together(change, *(lambda c=c: watch(c, ready) for c in (one, two, three)))
        halves = sum(not is_whole for node in seen for _, is_whole in node)
        stage.say(f"At once, as versions: {len(seen)} nodes have seen {halves} halves.")
        in_order = all([n for n, _ in node] == sorted({n for n, _ in node}) for node in seen)
        stage.say(f"Each saw the versions in order, the last one is {VERSIONS}: {in_order}.")

        try:
            settings.change({"host": "db-9"})
        except BadArgumentsError as error:
            stage.say(f"A host without its password is refused: {error}")
        now = Configuration(one, "db").get()
        stage.say(f"So all still have version {now.version}, {now.values['host']}.")


if __name__ == "__main__":
    perform(story)
