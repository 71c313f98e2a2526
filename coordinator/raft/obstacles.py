"""The reasons why no leader can be elected, in words, as far as one member knows. Pure.

A status of "an election is under way" misleads if none can succeed. The lasting obstacles are
known: each connected member shows whether it may vote, and to which cluster its data belong
(``incarnations``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """The facts that a connected member shows of its data."""

    is_proven: bool
    cluster_id: bytes = b""


def obstacle(
    member_id: str,
    others: Collection[str],
    *,
    shown: Mapping[str, Shown],
    own: Shown,
    is_first: bool,
    has_leader: bool = False,
) -> str:
    """Return what prevents the election of a leader; "" if nothing is known to.

    ``shown`` are the connected ones; ``is_first``: the first election is still to come, as
    far as is known here; ``has_leader``: there is one, who lets the others catch up."""
    strangers = [
        each for each in sorted(shown)
        if own.cluster_id and shown[each].cluster_id not in (b"", own.cluster_id)
    ]  # fmt: skip
    if strangers:
        return _of_another_cluster(member_id, strangers, len(others) + 1)
    if has_leader:
        return ""
    everybody = len(others) + 1
    needed = everybody // 2 + 1
    known = {**shown, member_id: own}
    without_vote = [each for each in sorted(known) if not known[each].is_proven]
    missing = sorted(set(others) - set(shown))
    is_new = is_first and len(without_vote) == len(known)
    if everybody - len(without_vote) >= needed:
        is_enough = is_new or not without_vote or len(known) - len(without_vote) >= needed
        return "" if is_enough else _of_those_away(without_vote, missing, needed, everybody)
    if is_new:
        if not missing:
            return ""  # the first election
        return (
            "a new cluster elects its first leader with all of its members; not reachable:"
            f" {', '.join(missing)}: start {_them(missing)}"
        )
    return (
        f"{_members(without_vote)} {_have(without_vote)} no vote, and {needed} of {everybody}"
        f" members are needed that have one: {_their(without_vote)} data may lack what was promised"
        " (the directory was empty at the start, or an older copy). If this is a new cluster, stop"
        " all members, empty all data directories and start all; else start those that are missing,"
        " or run `coordinator recover` on the best data there are (docs/recovery.md)"
    )


def _of_those_away(without_vote: list[str], missing: list[str], needed: int, everybody: int) -> str:
    return (
        f"{_members(without_vote)} {_have(without_vote)} no vote before a leader lets"
        f" {_them(without_vote)} catch up, and {needed} of {everybody} members are needed that have"
        f" one; not reachable: {', '.join(missing)}: start {_them(missing)}"
    )


def _of_another_cluster(member_id: str, strangers: list[str], everybody: int) -> str:
    if 2 * len(strangers) >= everybody:
        return (
            f"its data directory is another cluster's than that of {_members(strangers)}: stop"
            f" member {member_id}, and give it its own data_dir, or an empty one"
        )
    return (
        f"{_members(strangers)} {_run(strangers)} on the data of another cluster: stop"
        f" {_them(strangers)}, and give {_them(strangers)} the right data_dir, or an empty one"
    )


def _members(ids: list[str]) -> str:
    return f"member {ids[0]}" if len(ids) == 1 else f"members {', '.join(ids)}"


def _have(ids: list[str]) -> str:
    return "has" if len(ids) == 1 else "have"


def _run(ids: list[str]) -> str:
    return "runs" if len(ids) == 1 else "run"


def _their(ids: list[str]) -> str:
    return "its" if len(ids) == 1 else "their"


def _them(ids: list[str]) -> str:
    return "it" if len(ids) == 1 else "them"
