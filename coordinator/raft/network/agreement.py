"""The facts that must be equal on all members, shown in the handshake. No I/O.

Each member shows an ordered, bounded list of named facts (``handshake``). The first one that
differs refuses the link, and both sides log it in one sentence.

1. A fact is readable text, not a digest: a person must be able to read what differs.
2. A fact that only one side shows is a difference, too. An empty value means that the member does
   not know the fact yet, and agrees with any value.
3. Members that agree show all facts in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from coordinator.errors import ConfigError
from coordinator.node.config import ClusterConfig, RaftConfig

FACTS_MAX = 200
NAME_BYTES_MAX = 200
VALUE_BYTES_MAX = 1_024
FACTS_BYTES_MAX = 12 * 1024
"""The size of all facts together, in the handshake."""
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


def merged(facts: Sequence[Fact], more: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return ``facts`` with ``more`` behind them, in the place of those that have their names."""
    by_name = {fact.name: fact for fact in (*facts, *more)}
    return tuple(by_name.values())


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


def shown(facts: Sequence[Fact]) -> tuple[tuple[str, str], ...]:
    """Return what another member is shown of ``facts``."""
    return tuple((fact.name, fact.value) for fact in facts)


def is_shown(value: Any) -> bool:
    """Say whether what another member sent is a list of facts, within the limits."""
    return (
        type(value) is tuple
        and len(value) <= FACTS_MAX
        and all(
            type(each) is tuple and len(each) == 2 and all(type(text) is str for text in each)
            for each in value
        )
    )


def difference(
    own: Sequence[Fact], theirs: Sequence[tuple[str, str]], own_id: str, peer_id: str
) -> str:
    """Return the first difference in one sentence, with what to do about it; "" without one."""
    mine = {fact.name: fact for fact in own}
    there = dict(theirs)
    for name in _in_order(list(mine), list(there)):
        fact = mine.get(name)
        here = None if fact is None else fact.value
        found = there.get(name)
        if here == found or "" in (here, found):
            continue
        advice = "run the same release on all members" if fact is None else fact.advice
        return (
            f"members {own_id} and {_text(peer_id)} differ in {_text(name)}:"
            f" {_quoted(here)} on member {own_id}, {_quoted(found)} on member {_text(peer_id)};"
            f" {advice}"
        )
    return ""


def _in_order(mine: list[str], theirs: list[str]) -> list[str]:
    """Return all names in my order, those only the other has behind their neighbour there."""
    names, at = list(mine), 0
    for name in theirs:
        if name in mine:
            at = names.index(name) + 1
        else:
            names.insert(at, name)
            at += 1
    return names


def _quoted(value: str | None) -> str:
    return "nothing" if value is None else f"'{_text(value)}'"


def _text(value: str) -> str:
    """Return another member's text so that it cannot flood or forge a line of the log."""
    plain = ascii(value)[1:-1]
    return plain if len(plain) <= _SHOWN_MAX else plain[: _SHOWN_MAX - 3] + "..."
