"""Incarnations of a data directory: how a restored older copy is distinguished from the newest.

The life of a data directory is a sequence of incarnations. A new one, with a number and a random
id, begins with each start, and once a minute while something is written. On each connection a
member shows the ids of its last incarnations; each other member keeps the last one that it has met.

1. A member must show an incarnation before anything that it says about the log counts on a
   connection, and the listener must first have noted that incarnation durably. So every member that
   counted on it remembers its incarnation. Without room for the note, nothing counts. The same
   holds for an incarnation that begins while the connection lasts.
2. A member that does not know an incarnation in which another has met it runs on an older copy. It
   is notified, begins to recover (``recovering``), and shows itself again as recovering. So does
   one whose directory was emptied, from its start. It believes one accuser that repeats its own
   seal; without that seal it believes only as many as know a life that was proven, because the
   accusation could be forged.
3. A member that lost its disk, or was accused, and has caught up since, knows none of its earlier
   incarnations. It was proven with more than it had then (``recovering``, rule 5), so those who met
   it before and were away since accept it. One that was proven with less is an older copy, whatever
   it knows. A member that was met while it recovered must know that incarnation by its id: which of
   two such lives is later is unknown, so it does not count before enough others vouch for it.
4. A member stores an incarnation durably before it shows it. So others know no incarnation that its
   member has forgotten, unless data were lost.
5. Numbers only grow. Only the last ids are kept; beyond those the number alone decides, within one
   life. A life begins with an empty directory and is identified by the id of its first incarnation,
   which is never dropped: a member that met recovering members, and was away for longer than the
   ids reach, must not accuse them, for there may be no others.

Not detected: a copy that is younger than its incarnation, so that less than a minute is forgotten;
and a copy whose member meets no member that knows of a later incarnation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random

from coordinator.errors import DiskFullError
from coordinator.raft.blocking import RunBlocking
from coordinator.raft.network.messages import (
    INCARNATION_ID_BYTES,
    Doubt,
    Incarnation,
    IncarnationLost,
    IncarnationSeen,
    Message,
    Vouch,
)
from coordinator.raft.obstacles import Shown, obstacle
from coordinator.raft.rejoin.incarnation_record import (
    NO_PROOF_IS_LATER,
    IncarnationRecord,
    Met,
    is_older_copy,
    is_own_seal,
    knows,
    load,
    packed,
    save,
    seal,
)
from coordinator.raft.rejoin.recovering import TRY_AGAIN_MS, Proof, Recovering, RecoveryStage
from coordinator.raft.storage.disk import Disk
from coordinator.raft.storage.ownership import Ownership

logger = logging.getLogger(__name__)

AboutIncarnations = Incarnation | IncarnationSeen | IncarnationLost | Doubt | Vouch

INCARNATION_MS = 60_000
"""An incarnation in which something was written ends after so long."""
SAY_AGAIN_MS = 60_000
"""The time between two log lines about one member's accusations."""


class Incarnations:
    """The incarnations of one member, and what it knows of those of others.

    Args:
        recovery: this member's.
        on_met: called for a member that this one hears now, or that hears it.
        on_older_copy: called once it is known that this member's data are an older copy.
        on_cluster_id: called with the cluster's id when a leader shows it.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        others: tuple[str, ...],
        *,
        random: Random,
        now_ms: Callable[[], int],
        resend_ms: int,
        send: Callable[[str, Message], bool],
        run_blocking: RunBlocking,
        recovering: Recovering,
        ownership: Ownership,
        on_met: Callable[[str], None],
        on_older_copy: Callable[[str], None],
        on_cluster_id: Callable[[bytes], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Begin an incarnation; it is stable on return."""
        self._disk = disk
        self._directory = directory
        self._others = others
        self._random = random
        self._now_ms = now_ms
        self._resend_ms = resend_ms
        self._send = send
        self._run_blocking = run_blocking
        self._recovering = recovering
        self._ownership = ownership
        self._on_met = on_met
        self._on_older_copy = on_older_copy
        self._on_cluster_id = on_cluster_id
        self._on_failure = on_failure
        self._connected: set[str] = set()
        self._heard: set[str] = set()
        """Members that have shown, on this connection, an incarnation that fits what is known."""
        self._seen_by: set[str] = set()
        """Members that have noted the present incarnation."""
        self._heard_by: set[str] = set()
        """Members that have noted an incarnation on this connection, and hear this one since."""
        self._accused: set[str] = set()
        self._accused_by: set[str] = set()
        """The members that accuse this one, of what it cannot check; each counts once in its
        life."""
        self._vouched: dict[tuple[str, bytes], set[str]] = {}
        """The asked members, by member and life: the asked members that hear it."""
        self._logged_ms: dict[str, int] = {}
        self._slowly_ms = 0
        self._shown_by: dict[str, Shown] = {}
        """What the connected members show of their data."""
        self._shown_ms = 0
        self._shown_state: object = (recovering.stage, ownership.cluster_id)
        self._saving: asyncio.Task[None] | None = None
        self._noted: dict[str, Met] = {}
        """Met, but not durable yet."""
        self._is_stopped = False
        self._record = load(disk, directory)
        self._record.key = self._record.key or ownership.draw_id()
        recovering.key = self._record.key
        self._began_ms = now_ms()
        self._began_at: object = None
        self._try_again_ms: int | None = None
        """A part of the record is not durable because the disk is full."""
        self._owes_incarnation = False
        if others:
            self._begin_life()

    def _begin_life(self) -> None:
        begun = self._record.begun(self._draw())
        try:
            save(self._disk, self._directory, packed(begun))
        except DiskFullError as error:
            if not self._record.number:
                raise  # it was never shown anywhere: there is no incarnation to go on in
            logger.warning("an incarnation begins when there is room: %s", error)
            self._owes_incarnation = True
            self._try_again_ms = self._now_ms() + TRY_AGAIN_MS
        else:
            self._record = begun

    def obstacle(self, *, has_leader: bool) -> str:
        """What prevents the election of a leader, in words; "" if nothing is known to."""
        own, cluster_id = self._recovering, self._ownership.cluster_id
        return obstacle(
            self._ownership.owner.member_id, self._others, shown=self._shown_by,
            own=Shown(own.is_proven, cluster_id), is_first=own.is_new or own.is_founding,
            has_leader=has_leader,
        )  # fmt: skip

    def _maybe_end_founding(self) -> None:
        """End the founding if so many others hold what it had that the rest can be proven."""
        proven = sum(shown.is_proven for shown in self._shown_by.values())
        if proven >= (len(self._others) + 1) // 2:
            self._recovering.end()

    def hears(self, member_id: str) -> bool:
        """Whether what this member says about the log counts."""
        return member_id in self._heard

    @property
    def met_count(self) -> int:
        """How many members this one hears and is heard by: as many votes could be counted."""
        return len(self._heard & self._heard_by)

    def may_tell_term(self, member_id: str) -> bool:
        """Whether a member that asks for terms is noted here as recovering; if not, ask it to be.

        So if one of its two lives was answered, no answering member takes the other life for the
        later one, even if it noted that one before it knew of any history, or dies in between."""
        met = self._record.met.get(member_id)
        is_noted = met is not None and met.proof == NO_PROOF_IS_LATER
        if not is_noted and self._recovering.is_proven:
            self._show(member_id, is_asking=True)
        return is_noted

    def on_connected(self, member_id: str) -> None:
        """Show the other member on which copy of its data this one runs."""
        self.on_disconnected(member_id)
        self._connected.add(member_id)
        self._show(member_id)

    def on_disconnected(self, member_id: str) -> None:
        """Forget what was shown: the member must show it again."""
        for known in (
            self._connected, self._heard, self._seen_by, self._heard_by, self._accused,
        ):  # fmt: skip
            known.discard(member_id)
        self._shown_by.pop(member_id, None)
        self._noted.pop(member_id, None)

    def on_message(self, member_id: str, message: AboutIncarnations) -> None:
        """Act on a message about incarnations."""
        if isinstance(message, IncarnationSeen):
            if message.number == self._record.number:
                self._accused_by.discard(member_id)
                self._seen_by.add(member_id)
                if member_id not in self._heard_by:
                    self._heard_by.add(member_id)
                    self._on_met(member_id)
        elif isinstance(message, Incarnation):
            self._on_incarnation(member_id, message)
        elif isinstance(message, IncarnationLost):
            self._on_lost(member_id, message)
        elif isinstance(message, Doubt):
            self._on_doubt(member_id, message)
        else:
            self._on_vouch(member_id, message)

    def tick(self, log_position: object, leader_id: str | None) -> None:
        """Show again what was not seen; begin an incarnation if the log moved and it is time to."""
        now_ms = self._now_ms()
        ownership, stage = self._ownership, self._recovering.stage
        if stage is RecoveryStage.FOUNDING:
            self._maybe_end_founding()
            stage = self._recovering.stage
        if not ownership.is_noted:
            ownership.maybe_note(now_ms)
        cluster_id = ownership.owner.cluster_id
        if not cluster_id and leader_id in self._shown_by:
            ownership.learn(self._shown_by[leader_id].cluster_id)
            cluster_id = ownership.owner.cluster_id
            self._on_cluster_id(cluster_id)
        state = (stage, cluster_id)
        if self._shown_state != state:
            self._shown_state = state
            self._show_all()
        if now_ms - self._shown_ms >= self._resend_ms:
            self._shown_ms = now_ms
            is_slow = now_ms - self._slowly_ms < TRY_AGAIN_MS
            self._slowly_ms = self._slowly_ms if is_slow else now_ms
            stuck = self._accused | self._accused_by
            for member_id in self._others:
                is_done = member_id in self._heard and member_id in self._seen_by
                is_done = is_done or self._is_foreign(member_id)
                is_done = is_done or (is_slow and member_id in stuck)
                if member_id in self._connected and not is_done:
                    self._show(member_id)
        if self._saving is not None or (self._try_again_ms or 0) > now_ms:
            return
        is_old = now_ms - self._began_ms >= INCARNATION_MS and log_position != self._began_at
        if self._others and (is_old or self._owes_incarnation):
            self._owes_incarnation = False
            self._began_ms, self._began_at = now_ms, log_position
            self._start_saving(self._record.begun(self._draw()))
        elif self._try_again_ms is not None:
            self._start_saving(self._record)

    @property
    def is_settled(self) -> bool:
        """Whether each connected member has shown itself and has seen this one; nothing waits."""
        heard, seen_by = self._heard, self._seen_by
        for each in self._connected:
            if each not in heard or each not in seen_by:
                return False
        return self._ownership.is_noted and self._try_again_ms is None

    async def stop(self) -> None:
        """Do nothing more; the file that is being written is completed."""
        self._is_stopped = True
        if self._saving is not None:
            await asyncio.wait((self._saving,))

    def drop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True

    def _draw(self) -> bytes:
        count = INCARNATION_ID_BYTES
        return self._random.getrandbits(8 * count).to_bytes(count, "big")

    def _show(self, member_id: str, *, is_asking: bool | None = None) -> None:
        record = self._record
        is_asking = member_id not in self._heard if is_asking is None else is_asking
        ids = b"".join(record.ids)
        is_proven, proof = self._recovering.is_proven, self._recovering.proof
        shown = Incarnation(
            record.number, ids, record.life_id, is_proven, is_asking, *proof,
            self._ownership.cluster_id,
            seal(record.key, record.number, record.ids[-1], record.life_id,
                 proof if is_proven else None),
        )  # fmt: skip
        self._send(member_id, shown)

    def _show_all(self) -> None:
        for member_id in sorted(self._connected):
            self._show(member_id)

    def _on_incarnation(self, member_id: str, message: Incarnation) -> None:
        ids = message.ids
        found = [
            ids[at : at + INCARNATION_ID_BYTES]
            for at in range(0, len(ids) - INCARNATION_ID_BYTES + 1, INCARNATION_ID_BYTES)
        ]
        if not found:
            return
        if message.is_asking:
            self._show(member_id, is_asking=False)
        if self._is_of_another_cluster(member_id, message):
            return
        number, is_proven = message.number, message.is_proven
        proof = Proof(message.proof_term, message.proof_index)
        met = self._record.met.get(member_id)
        life_id = message.life_id
        unproven = Proof(0, 0) if self._recovering.is_new else NO_PROOF_IS_LATER
        noted = Met(number, found[-1], proof if is_proven else unproven, life_id, message.seal)
        is_accused = (
            met is not None and is_proven and is_older_copy(number, found, life_id, proof, met)
        )
        if met is not None and is_accused and not self._is_vouched_for(member_id, noted, met):
            self._accuse(member_id, number, met)
        elif met == noted:
            self._hear(member_id, number)
        else:
            self._accused.discard(member_id)
            self._noted[member_id] = noted
            self._maybe_save()

    def _accuse(self, member_id: str, number: int, met: Met) -> None:
        self._heard.discard(member_id)
        self._accused.add(member_id)
        now_ms = self._now_ms()
        if now_ms - self._logged_ms.get(member_id, -SAY_AGAIN_MS) >= SAY_AGAIN_MS:
            self._logged_ms[member_id] = now_ms
            logger.error(
                "member %s runs on an older copy of its data: in incarnation %d, it was in %d",
                member_id, number, met.number,
            )  # fmt: skip
        lost = IncarnationLost(met.number, met.incarnation_id, met.life_id, *met.proof, met.seal)
        self._send(member_id, lost)

    def _is_vouched_for(self, member_id: str, shown: Met, met: Met) -> bool:
        """Ask the others about a member that was met in another life, if the later is unknown.

        Return whether so many hear it that too few can have known the other life to prove it."""
        lives = {shown.life_id, met.life_id}
        if len(lives) < 2 or b"" in lives or met.proof not in (NO_PROOF_IS_LATER, shown.proof):
            return False
        needed = (len(self._others) + 1) // 2
        if len(self._vouched.get((member_id, shown.life_id), ())) >= needed:
            return True
        for other in sorted(self._heard - {member_id}):
            self._send(other, Doubt(member_id, shown.life_id))
        return False

    def _on_doubt(self, member_id: str, message: Doubt) -> None:
        about = message.member_id
        met = self._record.met.get(about)
        is_known = met is not None and met.life_id == message.life_id and about in self._heard
        if is_known and self._recovering.is_proven:
            self._send(member_id, Vouch(about, message.life_id))

    def _on_vouch(self, member_id: str, message: Vouch) -> None:
        shown = self._shown_by.get(member_id)
        is_asked = message.member_id in self._accused and message.member_id != member_id
        if is_asked and member_id in self._heard and shown is not None and shown.is_proven:
            about = (message.member_id, message.life_id)
            self._vouched.setdefault(about, set()).add(member_id)

    def _is_of_another_cluster(self, member_id: str, message: Incarnation) -> bool:
        was_foreign = self._is_foreign(member_id)
        cluster_id = message.cluster_id
        self._shown_by[member_id] = Shown(message.is_proven, cluster_id)
        if not self._is_foreign(member_id):
            return False
        self._heard.discard(member_id)
        if not was_foreign:
            logger.error(
                "member %s runs on the data of another cluster (expected id %s, found %s): one of"
                " the two has a data directory that is not its own",
                member_id, self._ownership.cluster_id.hex(), cluster_id.hex(),
            )  # fmt: skip
        return True

    def _is_foreign(self, member_id: str) -> bool:
        own_id, shown = self._ownership.cluster_id, self._shown_by.get(member_id)
        return shown is not None and own_id != b"" and shown.cluster_id not in (b"", own_id)

    def _hear(self, member_id: str, number: int) -> None:
        self._send(member_id, IncarnationSeen(number))
        if member_id not in self._heard:
            self._heard.add(member_id)
            self._on_met(member_id)

    def _on_lost(self, member_id: str, message: IncarnationLost) -> None:
        """Believe what is sealed here; of what is not, one witness more than can be wrong is needed
        (module, 2)."""
        proof = Proof(message.proof_term, message.proof_index)
        met = Met(message.number, message.incarnation_id, proof, message.life_id, message.seal)
        shown, own = self._record, self._recovering
        if not own.is_proven or not is_older_copy(
            shown.number, shown.ids, shown.life_id, own.proof, met
        ):
            return
        is_sealed = not knows(shown.number, shown.ids, met) and is_own_seal(shown, met)
        self._accused_by.add(member_id)
        count = len(self._others) + 1
        if not is_sealed and len(self._accused_by) < count - count // 2:
            self._log_accusation(member_id)
            return
        self._accused_by.clear()
        self._on_older_copy(
            f"member {member_id} has met it in incarnation {message.number}, which is not known"
            " here; was an old copy of its data put back?"
        )
        self._shown_state = (self._recovering.stage, self._ownership.cluster_id)
        self._seen_by.clear()
        self._heard_by.clear()
        self._show_all()

    def _log_accusation(self, member_id: str) -> None:
        now_ms = self._now_ms()
        if now_ms - self._logged_ms.get(member_id, -SAY_AGAIN_MS) >= SAY_AGAIN_MS:
            self._logged_ms[member_id] = now_ms
            logger.error(
                "member %s says that this member's data are an older copy, and cannot show it; it"
                " does not count on what this member says", member_id,
            )  # fmt: skip

    # Making it stable.

    def _maybe_save(self) -> None:
        if self._saving is None and self._noted and not self._is_stopped:
            met = {**self._record.met, **self._noted}
            self._start_saving(replace(self._record, met=met))

    def _start_saving(self, record: IncarnationRecord) -> None:
        self._saving = asyncio.get_running_loop().create_task(self._save(record))

    async def _save(self, record: IncarnationRecord) -> None:
        try:
            body = packed(record)
            await self._run_blocking(lambda: save(self._disk, self._directory, body))
            self._try_again_ms = None
        except DiskFullError as error:
            # What was met stays in memory in this life; this member's incarnation goes on.
            logger.warning("incarnations are not noted for now: %s", error)
            self._try_again_ms = self._now_ms() + TRY_AGAIN_MS
            self._owes_incarnation |= record.number > self._record.number
            record = replace(self._record, met=record.met)
        except Exception as error:
            self._on_failure(error)
            return
        finally:
            self._saving = None
        if not self._is_stopped:
            self._follow(record)
            self._maybe_save()

    def _follow(self, record: IncarnationRecord) -> None:
        """Act on ``record``, which is stable now."""
        has_begun = record.number > self._record.number
        self._record = record
        for member_id, shown in list(self._noted.items()):
            if record.met.get(member_id) == shown:
                del self._noted[member_id]
                self._hear(member_id, shown[0])
        if has_begun:
            self._seen_by.clear()
            self._show_all()
