"""One schedule, two locks: Redis or Redlock on the left, a lease with a fencing token on the right.

Everything is simulated, on both sides and in the same order, so a film is the same each time. What
is shown of ours is shown on real members by the stories that each film names. Both authors are
heard at the end, in our words:
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html and
http://antirez.com/news/101.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.clock import ManualClock
from coordinator.learn.film import Changes, Film, Guess, Recorder, Value
from coordinator.learn.redlock import LeaseLock, Master, Redlock, RedlockAttempt, Store

TTL_MS = 5_000
_NEAR_MS = 10
"""How long a packet takes to a master and back."""


class Both:
    """Both sides of one film: their locks, their stores, and what is recorded of them."""

    def __init__(self, title: str, masters: int) -> None:
        self.name = "Redis" if masters == 1 else f"Redlock with {masters} masters"
        source = f"simulated: {self.name} and a lock with fencing tokens, the same schedule"
        self.recorder = Recorder(ManualClock(), f"{title}: {self.name}", source)
        self.masters = tuple(Master(f"m{number}") for number in range(1, masters + 1))
        self.redlock = Redlock(self.masters, TTL_MS)
        self.ours = LeaseLock(TTL_MS)
        self.stores = {"theirs": Store(), "ours": Store()}
        self.believes = {"A": 0, "B": 0}
        """Until when a client of Redlock believes that it holds."""
        self._show(0, "", "", {})

    @property
    def last(self) -> Master:
        """The master that both majorities share; the only one, if there is one."""
        return self.masters[len(self.masters) // 2]

    def reach(self, who: str) -> dict[str, int | None]:
        """Return the round trips of a client: A reaches the first majority, B the last one."""
        middle = len(self.masters) // 2
        near = self.masters[: middle + 1] if who == "A" else self.masters[middle:]
        return {each.name: _NEAR_MS if each in near else None for each in self.masters}

    def acquire(self, who: str, at_ms: int) -> RedlockAttempt:
        """Let ``who`` ask on both sides."""
        found = self.redlock.acquire(who, at_ms, self.reach(who))
        yes = f"{len(found.granted_by)} of {len(self.masters)} say yes"
        if found.is_holder:
            self.believes[who] = found.until_ms
            text = f"{who} asks: {yes}. It may believe to hold until {_s(found.until_ms)}."
        else:
            text = f"{who} asks: {yes}, {found.needed} are needed. It does not hold."
        self._show(at_ms, f"{self.name}", text, {("theirs", "clients", who): _held(found)})
        token = self.ours.enter(who, at_ms)
        is_granted = self.ours.holder == who
        text = f"{who} asks: it holds, token {token}." if is_granted else (
            f"{who} asks: it waits in the queue, token {token}; {self.ours.holder} holds."
        )
        state = f"holds {token}" if is_granted else f"waits with {token}"
        self._show(at_ms, "ours", text, {("ours", "clients", who): state}, self.ours.zxid)
        return found

    def write(self, who: str, at_ms: int, token: int, *, how: str = "writes") -> None:
        """Let ``who`` write on both sides, by what it believes."""
        before = self.stores["theirs"].value
        self.stores["theirs"].write(f"by {who}", None)
        lost = f" What was there is lost: {before}." if before not in ("empty", f"by {who}") else ""
        self._show(at_ms, self.name, f"{who} {how}: the store takes it.{lost}", {
            ("theirs", "damage"): lost.strip() or None
        })  # fmt: skip
        store = self.stores["ours"]
        if store.write(f"by {who}", token):
            text, shield = f"{who} {how} with token {token}: the store takes it.", None
        else:
            shield = f"BLOCKED {token} < {store.highest_token}"
            text = f"{who} {how} with token {token}: refused, {store.highest_token} has been seen."
        self._show(at_ms, "ours", text, {("ours", "shield"): shield})

    def expire(self, at_ms: int) -> None:
        """Let the lease of our holder end, if it is its time."""
        former = self.ours.holder
        if self.ours.expire(at_ms):
            text = f"{former}'s lease has ended, by the leader's monotonic clock."
            changes: dict[tuple[str, ...], Value] = {("ours", "clients", former): "lost"}
            if self.ours.holder:
                text += f" {self.ours.holder} holds, token {self.ours.token}."
                changes["ours", "clients", self.ours.holder] = f"holds {self.ours.token}"
            self._show(at_ms, "ours", text, changes, self.ours.zxid)

    def release(self, who: str, at_ms: int) -> None:
        """Let our holder, which is alive and done, give back."""
        self.ours.release(at_ms)
        text = f"{who} is done and releases."
        changes: dict[tuple[str, ...], Value] = {("ours", "clients", who): "done"}
        if self.ours.holder:
            text += f" {self.ours.holder} holds, token {self.ours.token}."
            changes["ours", "clients", self.ours.holder] = f"holds {self.ours.token}"
        self._show(at_ms, "ours", text, changes, self.ours.zxid)

    def say(self, at_ms: int, who: str, text: str, question: Guess | None = None) -> None:
        """Record a sentence on both sides."""
        self._show(at_ms, who, text, {}, question=question)

    def end(self, at_ms: int, critic: str, author: str) -> Film:
        """Record how it came out and what both authors say of it; return the film."""
        theirs, ours = (self.stores[side].value for side in ("theirs", "ours"))
        self._show(at_ms, "outcome", f"{self.name}: the data is {theirs}. Ours: {ours}.", {})
        self._show(at_ms, "Kleppmann", critic, {})
        self._show(at_ms, "antirez", author, {})
        return self.recorder.film()

    def _show(
        self,
        at_ms: int,
        who: str,
        text: str,
        changes: Changes,
        zxid: int | None = None,
        *,
        question: Guess | None = None,
    ) -> None:
        holders = self.redlock.holders(at_ms)
        shown: dict[tuple[str, ...], Value] = {
            **{("theirs", "masters", name): _shown(name, holders, self.masters)
               for name in holders},
            ("theirs", "believers"): sorted(
                who for who, until_ms in self.believes.items() if until_ms > at_ms
            ),
            ("theirs", "store", "value"): self.stores["theirs"].value,
            ("ours", "store", "value"): self.stores["ours"].value,
            ("ours", "store", "highest_token"): self.stores["ours"].highest_token,
            ("ours", "lock", "holder"): self.ours.holder or "free",
            ("ours", "lock", "token"): self.ours.token or None,
            ("ours", "lock", "queue"): [name for name, _ in self.ours.queue],
            **changes,
        }  # fmt: skip
        self.recorder.step(who, text, shown, zxid=zxid, question=question, at_ms=at_ms)


def clock_jump(masters: int = 5) -> Film:
    """The wall clock of one master jumps ahead by the time to live."""
    both = Both("A clock jumps", masters)
    both.acquire("A", 0)
    both.say(1_900, "guess", f"The wall clock of {both.last.name} is about to jump 5 s ahead.",
             Guess("Who may believe to hold after B has asked?",
                      ("A alone", "B alone", "A and B, on the left"), 2,
                      "The key ends early at the master that both majorities share."))  # fmt: skip
    both.last.clock_ahead_ms += TTL_MS
    both.say(2_000, "schedule", f"The wall clock of {both.last.name} jumps 5 s ahead (NTP, or by "
             "hand). On the right a member's does: no lease is counted by it.")  # fmt: skip
    both.acquire("B", 2_100)
    both.write("B", 2_500, 34) if both.ours.holder == "B" else _writes_left_alone(both, 2_500)
    both.write("A", 3_000, 33)
    both.release("A", 3_500)
    _writes_right_alone(both, 3_600)
    return both.end(
        3_700,
        "A lock whose safety needs clocks that do not jump is not safe where they can: by NTP, by "
        "an operator, by a leap second. Safety should not depend on time at all, only liveness.",
        "Do not step the clocks of masters: let NTP slew them, and Redis should use a monotonic "
        "clock. With a bounded drift, which real machines have, this schedule does not happen.",
    )


def long_pause(masters: int = 5) -> Film:
    """The holder is stopped for longer than its lock lives (a collection, a swap, SIGSTOP)."""
    both = Both("A long pause", masters)
    both.acquire("A", 0)
    both.say(1_000, "schedule", "A has looked: it holds. Before it writes, it is stopped for 6 s.")
    both.expire(TTL_MS)
    both.acquire("B", 5_200)
    token_of_b = both.ours.token
    both.write("B", 5_500, token_of_b)
    both.say(6_900, "guess", "A is about to wake, and to write what it had decided to.",
             Guess("What does the store on the left do with it?",
                      ("It refuses it", "It takes it: B's work is lost"), 1,
                      "Nothing in the write says that it is late."))  # fmt: skip
    both.write("A", 7_000, 33, how="wakes and writes")
    return both.end(
        7_100,
        "No check by the holder helps, for the pause can come after the check. The store has to "
        "refuse what is late; for that it needs a number that grows with each holder, which "
        "Redlock does not have.",
        "This is true of every lock that ends by itself, not of Redlock alone. Where a store can "
        "compare, a random value will do: set the value when you begin, and write only if it is "
        "still yours. A store that can check growing numbers could keep order without a lock.",
    )


def late_packet(masters: int = 5) -> Film:
    """A packet is held up in the network: first the answers of masters, then a write."""
    both = Both("A late packet", masters)
    slow: dict[str, int | None] = {each.name: 2_000 for each in both.masters}
    if masters == 1:
        slow = {both.last.name: 5_500}
    late = both.redlock.acquire("A", 0, slow)
    both.say(late.answered_ms, both.name,
             f"A asks, and the answers take {_s(late.answered_ms)}: the time to live is over. "
             "A looks at the clock after the answers, and rightly says: not held.")  # fmt: skip
    begin_ms = late.answered_ms + 500
    both.acquire("A", begin_ms)
    both.say(begin_ms + 1_000, "schedule",
             "A looks: it holds. It sends its write, and dies; the packet takes 6 s.")  # fmt: skip
    both.expire(begin_ms + TTL_MS)
    both.acquire("B", begin_ms + 5_200)
    both.write("B", begin_ms + 5_500, both.ours.token)
    both.write("A", begin_ms + 7_000, 33, how="has died; its late write arrives")
    return both.end(
        begin_ms + 7_100,
        "Networks delay packets: a large cloud service once measured 90 s. Looking at the clock "
        "when the lock is granted says nothing of when a later write arrives.",
        "A delay while the lock is acquired is caught, at any length: that is what the second "
        "look at the clock is for. A delay after it is a property of every lock that expires.",
    )


def lost_master(masters: int = 5) -> Film:
    """A master restarts without what it held; then once more with delayed restarts."""
    both = Both("A lost master", masters)
    both.acquire("A", 0)
    both.last.is_up = False
    both.say(1_000, "schedule", f"{both.last.name} loses power. On the right, a member does.")
    both.last.restart(keeps_data=False)
    both.say(1_500, "schedule", f"{both.last.name} is back, without the last second of its data. "
             "The member on the right is back with what a quorum has on disk.")  # fmt: skip
    both.acquire("B", 2_100)
    _writes_left_alone(both, 2_500)
    both.write("A", 3_000, 33)
    both.release("A", 3_500)
    _writes_right_alone(both, 3_600)
    yes = _with_delayed_restart(masters)
    both.say(3_700, both.name, f"With delayed restarts {both.last.name} would have stayed away for "
             f"5 s: B would have got {yes} of {masters}. That is the cure; it needs no disk.")
    return both.end(
        3_800,
        "It is one more assumption about time: that whoever restarts a machine waits long enough. "
        "A consensus protocol keeps its promises whatever the order and the times.",
        "The specification names the case and its cure: write each change to disk (fsync always), "
        "or let a master that crashed stay away for the longest time to live.",
    )


def _with_delayed_restart(masters: int) -> int:
    """Return how many masters B gets if the one that crashed stays away for the time to live."""
    both = Both("", masters)
    both.acquire("A", 0)
    both.last.is_up = False
    return len(both.redlock.acquire("B", 2_100, both.reach("B")).granted_by)


def _writes_left_alone(both: Both, at_ms: int) -> None:
    """B writes where it may believe to hold; where it waits, it does not write."""
    if both.believes["B"] > at_ms:
        both.stores["theirs"].write("by B", None)
        both.say(at_ms, both.name, "B writes: the store takes it.")
    both.say(at_ms, "ours", "B waits for its turn, and writes nothing.")


def _writes_right_alone(both: Both, at_ms: int) -> None:
    token = both.ours.token
    both.stores["ours"].write("by B", token)
    both.say(at_ms, "ours", f"B writes with token {token}, after it has read what A wrote.")


SCHEDULES: dict[str, Callable[[int], Film]] = {
    "clock-jump": clock_jump,
    "long-pause": long_pause,
    "late-packet": late_packet,
    "lost-master": lost_master,
}
"""What goes wrong, by name."""


def films() -> dict[str, Film]:
    """Return every film of this module by its name: redlock-clock-jump, redis-clock-jump …"""
    return {
        f"{kind}-{name}": schedule(masters)
        for kind, masters in (("redlock", 5), ("redis", 1))
        for name, schedule in SCHEDULES.items()
    }


def _held(found: RedlockAttempt) -> str:
    return f"believes until {_s(found.until_ms)}" if found.is_holder else "does not hold"


def _shown(name: str, holders: dict[str, str], masters: tuple[Master, ...]) -> str:
    master = next(each for each in masters if each.name == name)
    jumped = f", clock +{_s(master.clock_ahead_ms)}" if master.clock_ahead_ms else ""
    return (holders[name] or "free") + jumped if master.is_up else "down"


def _s(ms: int) -> str:
    return f"{ms / 1_000:g} s"
