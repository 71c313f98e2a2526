"""A report for each day, exactly once: five nodes start at midnight, one late, one crashes.

The ledger says which days are done; the report and its line in the ledger are one write, made only
while the lock holds. So a crash leaves neither, and who comes late sees the line.
"""

from __future__ import annotations

import threading

from coordinator.client import Client
from coordinator.errors import CoordinatorError
from examples.stage import Stage, perform
from recipes import Lock

LEDGER = "/reports"
LATE_S = 20
"""By so much the last node comes late: long after the others are done."""


class CrashError(Exception):
    """The node dies in the midst of its work."""


def report(stage: Stage, client: Client, node: str, day: str, *, crashes: bool = False) -> str:
    if client.exists(f"{LEDGER}/{day}") is not None:
        return f"{node}: the ledger has {day} already"
    grant = Lock(client, f"report-{day}", label=node, timeout=60).acquire()
    if client.exists(f"{LEDGER}/{day}") is not None:  # looked at again: we have waited
        grant.release()
        return f"{node}: it was done while I waited"
    stage.wait(2)
    if crashes:
        stage.cluster.cut_off(client)  # nothing comes from this node any more
        raise CrashError(node)
    done = f"by {node}, token {grant.fencing_token}".encode()
    client.create(f"{LEDGER}/{day}", done, if_held=grant)
    grant.release()
    return f"{node}: reported {day} with token {grant.fencing_token}"


def story(stage: Stage) -> None:
    started = threading.Event()

    def node(name: str, *, late: float = 0.0, crashes: bool = False) -> str:
        with stage.connect(
            name, lease=5 if crashes else None, timeout=1 if crashes else 10
        ) as client:
            if not crashes:
                started.wait()
            stage.wait(late)
            try:
                if crashes:
                    client.session()
                    started.set()
                return report(stage, client, name, "2026-01-31", crashes=crashes)
            except CrashError:
                return f"{name}: crashed in the midst of it"
            except CoordinatorError as error:
                return f"{name}: {error.message}"

    with stage.connect("setup") as client:
        client.create(LEDGER)
        for told in stage.together(
            lambda: node("node 1", crashes=True),
            lambda: node("node 2", late=1),
            lambda: node("node 3", late=1),
            lambda: node("node 4", late=1),
            lambda: node(f"node 5, {LATE_S} s late", late=LATE_S),
        ):
            stage.say(told)
        reports = client.children(LEDGER).names
        stage.say(f"Reports of that day: {len(reports)}. Not twice, and not zero times.")


if __name__ == "__main__":
    perform(story)
