"""The verdicts of ``lock_verdicts`` on stories written by hand: a true one, and each lie."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client import GrantRecord
from tests.cluster import lock_verdicts as verdicts
from tests.state.values import changed as replace


def grant(path: str, token: int, zxids: tuple[int, int], **more: Any) -> GrantRecord:
    """Return a grant whose times are a hundred times its zxids."""
    granted_zxid, ended_zxid = zxids
    kind = {"read": "shared", "slot": "slot"}.get(path.split("/")[-1][:4], "exclusive")
    said = {"kind": kind, "how": "released", **more}
    return GrantRecord(
        lock=path.split("/")[2], grant_id=f"{token}", path=path, fencing_token=token,
        session_id="s", entered_zxid=token, entered_ms=100 * token, granted_zxid=granted_zxid,
        granted_ms=100 * granted_zxid, ended_zxid=ended_zxid, ended_ms=100 * ended_zxid, **said,
    )  # fmt: skip


def held(each: GrantRecord, **more: Any) -> dict[str, Any]:
    """Return what an honest holder says of it."""
    said = {
        "who": "a0", "doing": "lock", "paths": [each.path], "token": each.fencing_token,
        "granted_ms": each.granted_ms + 1, "certain_ms": (each.ended_ms or 0) - 1,
        "max_hold_ms": 0, "downgraded_ms": None, "writes": [each.granted_zxid + 1],
    }  # fmt: skip
    return {**said, **more}


LOCK = grant("/locks/a/lock-1", 1, (1, 10))
NEXT = grant("/locks/a/lock-2", 2, (10, 20))
READER = grant("/locks/rw/read-1", 3, (3, 30))
ANOTHER = grant("/locks/rw/read-2", 4, (4, 25))
WRITER = grant("/locks/rw/lock-3", 5, (30, 40))
SLOTS = [grant(f"/locks/s/slot-{number}", number, (number, 50)) for number in (6, 7)]
SEVERAL = [
    grant(f"/locks/{name}/lock-9", 60, (60, 70), group=("/locks/m/lock-9", "/locks/n/lock-9"))
    for name in "mn"
]
TRUTH = [LOCK, NEXT, READER, ANOTHER, WRITER, *SLOTS, *SEVERAL]


def judged(grants: list[GrantRecord], *said: dict[str, Any]) -> str:
    told = said or [held(each) for each in grants]
    return "\n".join(verdicts.judge(verdicts.Story(grants, told, {"s": [(0, 2), (8, 1)]})))


def instead(lie: GrantRecord) -> list[GrantRecord]:
    return [lie if each.path == lie.path else each for each in TRUTH]


def test_a_true_story_is_believed() -> None:
    """Readers together, two of two slots although there is one later, several as one."""
    assert judged(TRUTH) == ""


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (replace(NEXT, granted_zxid=9), "was granted beside"),
        (replace(WRITER, granted_zxid=29), "was granted beside"),
        (replace(SLOTS[1], granted_zxid=8), "2 of 1 slots"),
        (replace(NEXT, fencing_token=1), "was granted after"),
        (replace(SEVERAL[1], granted_zxid=61), "half of a multi-lock"),
        (replace(LOCK, how="expired", ended_ms=900), "was certain 99 ms after the end"),
    ],
)
def test_a_history_that_breaks_a_promise_is_named(lie: GrantRecord, words: str) -> None:
    """Overlap, too many slots, a token that does not grow, half a grant, a loss learned late."""
    said = [held(each) for each in TRUTH if each.path != lie.path]
    said.append({**held(next(each for each in TRUTH if each.path == lie.path)),
                 "token": lie.fencing_token})  # fmt: skip

    assert words in judged(instead(lie), *said)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"token": 7}, "does not know"),
        ({"writes": [11]}, "a write at zxid 11"),
        ({"max_hold_ms": 5_000, "how": "max_hold"}, "ended after 900 ms"),
        ({"certain_ms": 1_002}, "was told of the next grant"),
        ({"downgraded_ms": 500}, "downgraded, and not shared"),
    ],
)
def test_a_holder_that_was_told_an_untruth_is_named(lie: dict[str, Any], words: str) -> None:
    """Another token, a write after the end, a bound cut short, a certainty that lasts too long."""
    lock = replace(LOCK, how=lie.pop("how", LOCK.how))

    assert words in judged(instead(lock), held(lock, **lie), held(NEXT))


def test_a_reader_beside_a_writer_that_has_not_downgraded_yet_is_named() -> None:
    """The history tells the kind at the end only, so the holder says when it asked."""
    writer = grant("/locks/rw/lock-1", 1, (1, 10), kind="shared")
    reader = grant("/locks/rw/read-2", 2, (5, 10))

    true = judged([writer, reader], held(writer, downgraded_ms=450), held(reader))
    false = judged([writer, reader], held(writer, downgraded_ms=550), held(reader))

    assert true == ""
    assert "came in before the downgrade" in false


def test_delays_work_done_once_and_rates_are_judged() -> None:
    """A grant within the delay, two first times, more permits than there were."""
    story = verdicts.Story([replace(LOCK, how="expired"), NEXT], [], {})
    twice = [{"key": "k", "result": each, "is_first": True} for each in ("a", "b")]

    assert verdicts.delays_kept(story, {"/locks/a": 500}) != []
    assert verdicts.delays_kept(story, {"/locks/a": 0}) == []
    assert verdicts.once(twice) != []
    assert verdicts.once([twice[0], {**twice[0], "is_first": False}]) == []
    assert verdicts.rate_kept(range(40), rate=20, burst=10) != []
    assert verdicts.rate_kept(range(0, 4_000, 50), rate=20, burst=10) == []
