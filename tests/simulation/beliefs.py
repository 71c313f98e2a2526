"""What clients believe of their sessions and grants, judged in that moment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from coordinator.client import Session
from coordinator.client.locks import Acquired
from tests.simulation.contending import Held, Key
from tests.simulation.told import Told

if TYPE_CHECKING:
    from tests.simulation.clients import SimulatedClient
    from tests.simulation.world import World


class Beliefs:
    """Those of all clients of a world, beside what its servers have ended and granted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._early_ends: set[str] = set()
        world.record.on_expired.append(self._note_expired)
        world.record.on_bound_over.append(self._check_bound_over)

    def look(self) -> None:
        """Whether a client believes in a session that was expired."""
        ended = self._world.record.ended_sessions
        for client in self._world.clients:
            client.note_session()
            for session_id, session in client.sessions.items():
                if session_id in ended:
                    self._check_believed(client, session_id, session)

    def note_grant(
        self, client: SimulatedClient, acquired: Acquired, keys: Sequence[Key], kind: str
    ) -> None:
        """Something is granted: no other client may believe in what excludes it now.

        Unless either was put out by force: nobody can tell that to its holder first, and the word
        of a grant may come after its end and the next grant.
        """
        world, record = self._world, self._world.record
        record.tally.grants += 1
        grant = acquired.grant
        world.note_shown(grant.zxid)
        for each in Told.each(client.name, grant):
            record.trace.add(client.name, f"granted {each.path} at {each.zxid}")
        if not client.believes_in(acquired):
            return
        for key, other in product(keys, world.clients):
            held = other.contending.holding.get(key)
            if held is None or other is client or (kind == held.kind != "exclusive"):
                continue
            paths = (*held.acquired.paths, *acquired.paths)
            is_forced = not record.locks.forced.isdisjoint(paths)
            if other.believes_in(held.acquired) and not is_forced and not self._is_lost(held):
                record.violate(
                    "one holder",
                    f"{client.name} is granted {key} as {grant.grant_id} ({kind}) while "
                    f"{other.name} believes in {held.acquired.grant.grant_id} ({held.kind})",
                )

    def _check_bound_over(self, paths: tuple[str, ...]) -> None:
        """The server has ended this hold: its client must not rely on it any more."""
        for client in self._world.clients:
            for held in client.contending.holding.values():
                is_over = held.acquired.paths[0] in paths and not self._is_lost(held)
                if is_over and client.believes_in(held.acquired):
                    self._world.record.violate(
                        "bounded holds", f"{client.name} believes in {paths}, whose bound is over"
                    )

    def _is_lost(self, held: Held) -> bool:
        """Whether the cluster may not know of it since it began again."""
        grant = held.acquired.grant
        tokens = [each.fencing_token for each in grant.grants or (grant,)]
        return any(map(self._world.record.is_lost, tokens))

    def _note_expired(self, session_id: str) -> None:
        """The server has expired this session: its client must not rely on it any more."""
        for client in self._world.clients:
            client.note_session()
        for client in self._world.clients:
            session = client.sessions.get(session_id)
            if session is not None:
                self._check_believed(client, session_id, session)

    def _check_believed(self, client: SimulatedClient, session_id: str, session: Session) -> None:
        if session_id in self._early_ends or not client.believes(session):
            return
        self._early_ends.add(session_id)
        left_ms = session._lease.remaining_ms(client.clock.monotonic_ms())
        self._world.record.violate(
            "no session ends early",
            f"{client.name} counts {left_ms} ms left of session {session_id}, which the "
            f"server expired at {self._world.record.ended_sessions[session_id]:.4f}",
        )
