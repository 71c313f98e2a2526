"""The rules: every constant that decides an outcome is named, stamped and compared."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from coordinator.state import levels, rules
from coordinator.state.rules import RULES, difference

ROOM = Path(rules.__file__).parent

DECIDES_NOTHING = {
    "codec": "how values are written; operations have levels",
    "outcome_codec": "how values are written; the formats have numbers of their own",
    "access.coverage._ANY_TEXT": "the end of a prefix that is a text; part of operations.PREFIX",
    "access.guard.BY_MEMBERS": "classes of commands, as code",
    "access.guard.ROWS": "methods by the classes of commands, as code",
    "access.guard._ROOTS": "QUEUE_ROOTS without their ends",
    "access.operations.CHANGES": "classes of commands, as code",
    "access.operations._RUNNERS": "methods by the classes of operations, as code",
    "access.table._COVERING_ACCESS": "what covers ACCESS, as code",
    "access.table._OF_MEMBER": "everything, as code",
    "access.table._RIGHTS_KEPT_MAX": "how many answers are kept that can be made again",
    "outcomes.RESULTS": "classes of results by those of operations, as code",
    "snapshot": "how values are written",
    "znode_rows": "how values are written",
    "rules": "this table",
    "capture_hold": "as large_map",
    "levels": "which formats this release reads and writes",
    "large_map": "in which dicts a table is kept, also while it is written; nothing can see it",
    "recency_map": "as large_map",
    "slices": "how states are compared; the format has a number of its own",
    "slice_room": "as slices",
    "slice_records": "as slices",
    "tree_walk": "as slices",
    "thread_breaks": "when other threads go on",
    "locks.grant_history._ENDED_ZXID": "an accessor",
    "locks.grant_history._NOTHING": "of a queue of which nothing is kept",
    "locks.end_order._CHUNK_MAX": "how an order is kept; it does not show",
    "locks.end_order._ENDED_ZXID": "an accessor",
    "locks.grant_order._CHUNK_MAX": "how an order is kept; it does not show",
    "locks.grant_history.LIMIT_DEFAULT": "how long a page of a read is",
    "remembered.SIZE_BYTES": "how values are written",
    "remembered.ROW_BYTES": "how values are written",
    "remembered._PLAIN": "what _OUTCOME_BYTES and _RESULT_BYTES are together, as it is written",
    "remembered._PLAIN_BYTES": "the same as a number",
    "remembered._SIZES": "functions by the classes of results, as code",
    "remembered._KEPT_SIZES": "as _SIZES",
    "remembered._WHOLE": "functions by the classes of what is kept, as code",
    "dedup._UNBOUND": "below every log index; it only marks",
    "locks.reads._ABSENT": "an answer to a read",
    "locks.departures._ENDINGS": "classes of commands by their endings, as code",
    "operations._ABOVE_QUEUES": "QUEUE_ROOTS without their ends",
    "operations._PARENT_MODES": "create modes, as code",
    "operations._RUNNERS": "methods by the classes of operations, as code",
    "room._BOUNDED": "names of limits, as code",
    "packing.VALUES_MAX": "what members send each other; a log is read without it",
    "packing._ROW_MAX": "what members send each other; a log is read without it",
    "packing._MAP_MAX": "what members send each other; a log is read without it",
    "packing._PIECE_BYTES": "what members send each other; a log is read without it",
    "packing._WALL_PLACE": "how values are written",
    "paths.ROOT": "the one name of the root",
    "paths._FORBIDDEN": "part of _PATH",
    "paths._SEQUENCE_PLACE": "SEQUENCE_DIGITS zeros",
    "tree.EPHEMERAL": "create modes, as code",
    "tree.SEQUENTIAL": "create modes, as code",
    "sessions._ADDRESS": "a limit's name, and how its refusal is worded",
    "sessions._CLIENT": "as _ADDRESS",
    "sessions._IDENTITY": "as _ADDRESS",
    "znode_changes": "create modes, as code",
    "commands.EXCLUSIVE": "a kind of contender, as code",
    "commands.SHARED": "a kind of contender, as code",
    "commands.SLOT": "a kind of contender, as code",
    "locks.departures._DELETED": "an ending, as code",
    "locks.operations._CONTAINER": "create modes, as code",
    "locks.operations._PERSISTENT": "create modes, as code",
    "locks.queues._CREATED": "an event's type, as code",
    "locks.queues._DATA_CHANGED": "an event's type, as code",
    "operations._CONTENDER_MODE": "create modes, as code",
    "tree._CREATED": "an event's type, as code",
    "tree._DATA_CHANGED": "an event's type, as code",
    "tree._DELETED": "an event's type, as code",
    "tree._SORTED_AT_ONCE": "how much is sorted in one step; the order does not show it",
}


def constants() -> list[str]:
    """Return every constant of the room, as module.NAME."""
    found = []
    for path in sorted(ROOM.rglob("*.py")):
        module = ".".join(path.relative_to(ROOM).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper():
                    found.append(f"{module}.{target.id}")
    return found


@pytest.mark.parametrize("constant", constants())
def test_each_constant_is_a_rule_or_decides_nothing(constant: str) -> None:
    """Add a new one to ``rules._DECIDING`` (it decides) or above (why it does not)."""
    module, _, name = constant.rpartition(".")
    is_rule = any(
        room.__name__ == f"coordinator.state.{module}" and name in names
        for _, room, names in rules._DECIDING
    )

    assert is_rule != (module in DECIDES_NOTHING or constant in DECIDES_NOTHING)


def test_what_is_said_to_decide_nothing_is_there() -> None:
    """The list does not outlive what it is about."""
    assert {each for each in DECIDES_NOTHING if "." in each} <= set(constants())


def test_the_rules_of_former_releases_never_change() -> None:
    """A state that is stamped with these must be read by this release. A new rule may be added
    here; one that is here is not changed: make it a limit, whose default is as before."""
    assert difference(FORMER) == ""


def test_a_difference_is_named() -> None:
    """Which rule, what it is here and what it was there."""
    assert difference(RULES) == ""
    assert difference(RULES[1:]) == "", "a rule that was not known then"
    assert difference([("paths.sequence_digits", "9")]) == (
        "paths.sequence_digits is 10 in this release, and was 9"
    )
    gone = difference([("no_such", "5")])
    assert gone == "no_such is no rule in this release, and was 5"


def test_the_rules_of_a_level_are_one_digest() -> None:
    """A rule that a later level added is none of the levels before."""
    assert set(rules.ADDED) <= {name for name, _ in RULES}
    assert set(rules.ADDED.values()) <= set(range(2, levels.NEWEST + 1))
    assert len({rules.digest_at(level) for level in (1, *rules.ADDED.values())}) == 1 + len(
        set(rules.ADDED.values())
    )


FORMER = (
    ("contenders.shown_directories_max", "4"),
    ("deadlock.cycle_shown_max", "16"),
    ("dedup.client_id", "[!-~]{1,64}"),
    ("dedup.outcome_bytes", "512"),
    ("dedup.result_bytes", "256"),
    ("grants.grant_bytes", "512"),
    ("limits.by_characters_max", "256"),
    ("limits.children_max", "1 to 1000000000, 100000 until it is set"),
    ("limits.clients_max", "1 to 1000000000, 20000 until it is set"),
    ("limits.data_bytes_max", "1 to 134217728, 1048576 until it is set"),
    ("limits.dropped_at_once", "2048"),
    ("limits.ephemerals_per_session_max", "1 to 1000000000, 20000 until it is set"),
    ("limits.grant_history_bytes_max", "1 to 1099511627776, 16777216 until it is set"),
    ("limits.grant_history_max", "1 to 1000000000, 10000 until it is set"),
    ("limits.remembered_percent_max", "1 to 100, 100 until it is set"),
    ("limits.name_shown_max", "40"),
    ("limits.operations_per_multi_max", "1 to 5000, 1000 until it is set"),
    ("limits.path_bytes_max", "64 to 65536, 1024 until it is set"),
    ("limits.path_depth_max", "4 to 1024, 64 until it is set"),
    ("limits.recursive_delete_max", "1 to 1000000000, 10000 until it is set"),
    ("limits.released_grants_max", "1 to 1000000000, 4096 until it is set"),
    ("limits.remembered_bytes_max", "1 to 1099511627776, 268435456 until it is set"),
    ("limits.request_window", "1 to 16384, 128 until it is set"),
    ("limits.rules_max", "256"),
    ("limits.sessions_max", "1 to 1000000000, 50000 until it is set"),
    ("limits.state_bytes_max", "1 to 1099511627776, 1073741824 until it is set"),
    ("limits.timeout_ms_max", "1 to 2592000000, 3600000 until it is set"),
    ("limits.timeout_ms_min", "1 to 2592000000, 1000 until it is set"),
    ("limits.znodes_max", "1 to 1000000000, 1000000 until it is set"),
    ("lock_operations.by_characters_max", "256"),
    ("lock_operations.conditions_max", "64"),
    ("lock_operations.group_max", "64"),
    ("lock_operations.lock_delay_ms_max", "60000"),
    ("lock_operations.longest_delay", "delay-0000000000000000000000000000000000000000"),
    ("lock_operations.max_hold_ms_max", "2592000000"),
    ("lock_operations.note_bytes_max", "1024"),
    ("lock_operations.owner_characters_max", "128"),
    ("lock_operations.prefix_characters_max", "32"),
    ("lock_operations.reason_characters_max", "512"),
    ("lock_operations.shown_tokens_max", "16"),
    ("lock_operations.size_max", "10000"),
    ("paths.forbidden_character", "[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]"),
    ("paths.path", "(?:/(?!\\.{1,2}(?:/|\\Z))[^/\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]+)+"),
    ("paths.sequence_digits", "10"),
    ("paths.shown_characters_max", "100"),
    ("places.contender_depth", "3"),
    ("places.delay_prefix", "delay-"),
    ("places.hand_made_number_max", "1000000000000"),
    ("places.kind_prefix_length", "5"),
    ("places.kinds_by_prefix", "read-: shared, slot-: slot"),
    ("places.long_number", "(?<!\\d)\\d{11,18}\\Z"),
    ("places.queue_depth", "2"),
    ("places.queue_roots", "('/locks/', '/elections/')"),
    ("places.recorded_data_bytes_max", "2048"),
    ("sessions.label_characters_max", "256"),
    ("sessions.session_id", "[!-~]{1,64}"),
    ("tree.znode_overhead_bytes", "512"),
)
