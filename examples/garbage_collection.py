"""A lease of 5 s and pauses up to 8 s: two ways to do harm, and what stops each of them.

A pause can come between looking at the lock and writing, so no lock can stop the late write; the
store can, because it has seen a higher token. Giving back what is not one's own any more is stopped
by the name of the grant.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from coordinator.errors import StaleTokenError
from coordinator.guards import FileGuard
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with (
        TemporaryDirectory() as directory,
        stage.connect("A", lease=5) as a,
        stage.connect("B") as b,
    ):
        unguarded = Path(directory) / "unguarded"
        guard = FileGuard(Path(directory) / "guarded")
        of_a = Lock(a, "report").acquire()
        of_a.check()
        stage.say(f"A looks: it holds, token {of_a.fencing_token}. Then it is paused for 8 s.")
        stage.cluster.pause(a, int(stage.seconds(8) * 1000) + 600)
        of_b = Lock(b, "report", timeout=60).acquire()
        unguarded.write_text("by B")
        guard.write(of_b.fencing_token, b"by B")
        stage.say(f"B holds, token {of_b.fencing_token}, and writes. A wakes and writes as well:")
        unguarded.write_text("by A")
        stage.say(f"  without the token: the data is {unguarded.read_text()}. B's work is lost.")
        try:
            guard.write(of_a.fencing_token, b"by A")
        except StaleTokenError:
            stage.say(f"  with the token: refused. The data is {(guard.read() or b'').decode()}.")

        stage.say(f"A gives the lock back, as it always does at the end: {of_a.release()}")
        stage.say(f"B still holds: {of_b.is_held().is_held}")


if __name__ == "__main__":
    perform(story)
