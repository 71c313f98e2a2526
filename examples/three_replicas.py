"""Three replicas of a service, of which one runs: moved by name, left by a death, never doubled.

Each replica publishes its address when it is elected, and everybody reads it. The epoch grows with
each leadership, whichever way it ends.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from coordinator import Client
from coordinator.errors import ClientClosedError, LockLostError
from coordinator.recipes import Election, Grant
from examples.stage import Stage, perform


class Replica:
    """One replica; its thread contends until it is told to stop."""

    def __init__(self, stage: Stage, client: Client, name: str, running: list[str]) -> None:
        self._stage = stage
        self._running = running
        self.name = name
        self.client = client
        self.election = Election(client, "report", value=f"10.0.0.{name}:80".encode())
        self.leads = threading.Event()
        self.move_to = ""
        self.epochs: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._contend, name=name, daemon=True)
        self._thread.start()

    def _contend(self) -> None:
        with suppress(ClientClosedError):
            self.election.run(self._serve)

    def _serve(self, leadership: Grant[Client]) -> None:
        assert not self._running, f"{self._running} runs, and {self.name} begins"
        self._running.append(self.name)
        self.epochs.append(leadership.epoch)
        self.leads.set()
        try:
            while not self._stop.wait(0.01) and not self.move_to:
                leadership.check()
        except LockLostError:
            self._stage.say(f"Replica {self.name} stops: its leadership is lost.")
            raise
        finally:
            self.leads.clear()
            self._running.remove(self.name)
        if self.move_to:
            to, self.move_to = self.move_to, ""
            self.election.hand_over(to)

    def stop(self) -> None:
        self._stop.set()


def story(stage: Stage) -> None:
    running: list[str] = []
    with (
        stage.connect("1", lease=5) as first,
        stage.connect("2", lease=5) as second,
        stage.connect("3", lease=5) as third,
        stage.connect("reader") as reader,
    ):
        seen = Election(reader, "report")
        replicas = []
        for count, (name, client) in enumerate(zip("123", (first, second, third), strict=True)):
            client.session()
            replicas.append(Replica(stage, client, name, running))
            while len(seen.who().candidates) + bool(seen.who().elected) <= count:
                stage.wait(0.01)
        one, two, three = replicas
        one.leads.wait()
        stage.say(f"Replica {' and '.join(running)} runs, the others stand by.")
        stage.say(f"Everybody reads that it is at {_address(seen)}.")

        one.move_to = "3"
        three.leads.wait()
        stage.say(f"Replica 1 hands over to replica 3: now it is at {_address(seen)}.")

        stage.cluster.step_clock(third, 3_600_000)
        stage.wait(1)
        stage.say(f"The clock of its host steps by an hour: {' and '.join(running)} runs.")

        stage.cluster.freeze_heartbeats(third)
        while not (one.leads.is_set() or two.leads.is_set()):
            stage.wait(0.01)
        heir = one if one.leads.is_set() else two
        stage.say(f"Replica 3 is not heard of any more: replica {heir.name} runs.")
        epochs = [one.epochs[0], three.epochs[0], heir.epochs[-1]]
        is_growing = epochs == sorted(set(epochs))
        stage.say(f"The epochs were {epochs}: {'each higher' if is_growing else 'wrong'}.")
        for each in replicas:
            each.stop()


def _address(seen: Election[Client]) -> str:
    elected = seen.who().elected
    return "nowhere" if elected is None else (elected.value or b"").decode()


if __name__ == "__main__":
    perform(story)
