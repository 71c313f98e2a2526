"""The agreement of members: what they show in the handshake, and compare first. No I/O.

Facts must be equal on all members: an ordered, bounded list of names and values (``handshake``).
The first one that differs refuses the link, and both sides log it in one sentence. Levels need not
be equal (docs/upgrading.md): a release reads a range of them, and the cluster is at one.

1. A fact is readable text, not a digest: a person must be able to read what differs. (Except for
   the rules of a level, of which there are a hundred; the state itself is the judge of these.)
2. A fact that only one side shows is of another release, and is not compared. An empty value means
   that the member does not know the fact yet, and agrees with any value.
3. Members that agree show all facts in the same order.
4. A member whose release does not read the level that the other's state has as they connect is
   refused. A connection of before the level was raised goes on: such a member may acknowledge
   entries of the new level, until it applies the one that raised it, and stops
   (``state.levels``). So all members are asked before it is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.msgpack import decode, encode

from coordinator.errors import ConfigError
from coordinator.node.config import ClusterConfig, RaftConfig

FACTS_MAX = 200
NAME_BYTES_MAX = 200
VALUE_BYTES_MAX = 1_024
FACTS_BYTES_MAX = 12 * 1024
"""The size of all facts together, in the handshake."""
_RELEASE_CHARACTERS_MAX = 64
_SHOWN_MAX = 160

_SAME_LIST = (
    "write the same [[cluster.members]] into both configurations, then restart the wrong one"
)
_SAME_SETTING = "give all members the same setting, then restart the wrong one"


class Fact(NamedTuple):
    """One thing that must be equal on all members.

    ``name`` is a noun phrase (``the address of member 3``), ``advice`` says what to do about a
    difference; it is not sent."""

    name: str
    value: str
    advice: str


class Levels(NamedTuple):
    """The levels that a release reads, and that of its member's state; 0: not known yet."""

    oldest: int = 0
    newest: int = 0
    present: int = 0


NO_LEVELS: Final = Levels()


@dataclass(frozen=True, slots=True)
class Agreement:
    """What this member shows, and expects of the others."""

    facts: Sequence[Fact] = ()
    levels: Levels = NO_LEVELS
    release: str = ""

    def with_facts(self, facts: Sequence[Fact]) -> Agreement:
        """Return it with ``facts``, too, each in the place of one that has its name; ConfigError
        for facts that cannot be shown."""
        check_facts(facts)
        by_name = {fact.name: fact for fact in (*self.facts, *facts)}
        check_facts(tuple(by_name.values()))
        return replace(self, facts=tuple(by_name.values()))

    def shown(self) -> bytes:
        """Return what another member is shown of it."""
        facts = tuple((fact.name, fact.value) for fact in self.facts)
        return encode(ShownAgreement(facts, self.levels, self.release))


NOTHING_AGREED: Final = Agreement()
ReadLevels = Callable[[], Levels]
_Level = Annotated[int, Meta(ge=0)]


class ShownAgreement(Struct, frozen=True):
    """What another member shows; names in it that this release does not know are skipped."""

    facts: Annotated[tuple[tuple[str, str], ...], Meta(max_length=FACTS_MAX)]
    levels: tuple[_Level, _Level, _Level] = NO_LEVELS
    release: Annotated[str, Meta(max_length=_RELEASE_CHARACTERS_MAX)] = ""

    @classmethod
    def read(cls, data: bytes) -> ShownAgreement:
        """Return what was shown; raises ValueError for anything else, or beyond the limits."""
        return decode(data, type=cls)


def facts_of_cluster(cluster: ClusterConfig) -> tuple[Fact, ...]:
    """Return the list of members. Their ``client_url`` may change while they run, one by one."""
    members = sorted(cluster.members, key=lambda address: address.member_id)
    ids = ", ".join(address.member_id for address in members)
    return (
        Fact("the cluster's name", cluster.name, "correct [cluster] name, or the address"),
        Fact("the list of members", ids, _SAME_LIST),
        *(
            Fact(
                f"the address of member {address.member_id}",
                f"{address.member_host}:{address.member_port}",
                _SAME_LIST,
            )
            for address in members
        ),
    )


def facts_of_raft(raft: RaftConfig) -> tuple[Fact, ...]:
    """Return the settings on which a member's promises to the others rest.

    How long votes count is measured by each in its own longest election timeout (``elections``,
    ``recovering``), and a frame that another member refuses ends the connection."""
    keys = ("election_timeout_ms_min", "election_timeout_ms_max", "frame_bytes_max")
    return tuple(Fact(f"raft.{key}", str(getattr(raft, key)), _SAME_SETTING) for key in keys)


def fact_of_id(cluster_id: bytes) -> Fact:
    """Return the id that tells apart clusters of one name (``ownership``); empty: not known yet."""
    return Fact(
        "the cluster's id",
        cluster_id.hex(),
        "one of the two has a data directory of another cluster: stop that member, and give it"
        " its own data_dir, or an empty one",
    )


def check_facts(facts: Sequence[Fact]) -> None:
    """Raise ConfigError for facts that cannot be shown."""
    names = [fact.name for fact in facts]
    if len(set(names)) != len(names):
        raise ConfigError(f"expected different names of facts, found {names}")
    if len(facts) > FACTS_MAX:
        raise ConfigError(f"expected at most {FACTS_MAX} facts of members, found {len(facts)}")
    for fact in facts:
        if not fact.name or len(fact.name.encode()) > NAME_BYTES_MAX:
            raise ConfigError(f"expected 1 to {NAME_BYTES_MAX} bytes, found {fact.name!r}")
        if len(fact.value.encode()) > VALUE_BYTES_MAX:
            raise ConfigError(f"{fact.name}: expected at most {VALUE_BYTES_MAX} bytes to show")
    total = sum(len(fact.name.encode()) + len(fact.value.encode()) + 6 for fact in facts)
    if total > FACTS_BYTES_MAX:
        raise ConfigError(f"expected facts of at most {FACTS_BYTES_MAX} bytes, found {total}")


def difference(own: Agreement, theirs: ShownAgreement, own_id: str, peer_id: str) -> str:
    """Return the first difference in one sentence, with what to do about it; "" without one."""
    there = dict(theirs.facts)
    for fact in own.facts:
        found = there.get(fact.name)
        if found is None or fact.value == found or "" in (fact.value, found):
            continue
        return (
            f"members {own_id} and {_text(peer_id)} differ in {fact.name}:"
            f" '{fact.value}' on member {own_id}, '{_text(found)}' on member {_text(peer_id)};"
            f" {fact.advice}"
        )
    here, peer = f"member {own_id}", f"member {_text(peer_id)}"
    levels = Levels(*theirs.levels)
    return _unread(own.levels, own.release, here, levels.present) or _unread(
        levels, theirs.release, peer, own.levels.present
    )


def _unread(levels: Levels, release: str, who: str, present: int) -> str:
    """Say that a member's release does not read the level at which a state is; "" if it does."""
    if not present or not levels.newest or levels.oldest <= present <= levels.newest:
        return ""
    reads = f"{levels.oldest} to {levels.newest}"
    what = "a newer" if levels.newest < present else "an older"
    return (
        f"the cluster is at level {present}, and the release of {who} ({_text(release)}) reads"
        f" levels {reads}; start it with {what} release (docs/upgrading.md)"
    )


def _text(value: str) -> str:
    """Return another member's text so that it cannot flood or forge a line of the log."""
    plain = ascii(value)[1:-1]
    return plain if len(plain) <= _SHOWN_MAX else plain[: _SHOWN_MAX - 3] + "..."
