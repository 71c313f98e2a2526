"""What strangers are refused pushes no other line out, and says how often it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.audit.files import AuditLogs
from coordinator.audit.folding import CALLERS_MAX, EACH_MAX
from coordinator.audit.opening import open_audit
from coordinator.clock import ManualClock
from coordinator.node.config import AuditConfig, Config
from tests.audit.audited import change, lines, log_of, refusal, verdict, write


def logs_of(path: Path, **settings: int) -> AuditLogs:
    audit = replace(AuditConfig(target="file", file=str(path)), **settings)
    logs = open_audit(Config(audit=audit), ManualClock())
    assert logs is not None
    return logs


def test_a_stranger_pushes_out_no_line_about_rights(tmp_path: Path) -> None:
    """By refusals without end from many addresses, with as long a text as can be."""
    path = tmp_path / "audit.jsonl"
    strangers = tmp_path / "audit.jsonl.strangers"
    for _ in range(40):  # lives: in each of them as many as its rate lets pass
        logs = logs_of(path, file_bytes_max=65_536, files_max=2)
        logs.start()
        if not lines(path):
            logs.note(change(1, event="token.added"))
        for number in range(200):
            logs.note(replace(refusal(number), resource="/" + "\x01" * 1_019))
        logs.stop()

    assert lines(path)[0]["event"] == "token.added"
    assert lines(strangers)[0]["number"] != 1, "their own lines are rolled away"
    assert sum(each.stat().st_size for each in tmp_path.glob("audit.jsonl.strangers*")) < 40_000
    assert (verdict(path).broken, verdict(strangers).broken) == ("", "")


@pytest.mark.parametrize("identity", ["", "ann"])
def test_the_refusals_of_one_caller_are_folded(tmp_path: Path, identity: str) -> None:
    """The count says how many more there were; another caller has lines of its own."""
    path, clock = tmp_path / "audit.jsonl", ManualClock()
    log = log_of(path, clock)
    log.start()
    for _ in range(100):
        log.note(replace(refusal(1), identity=identity))
    log.note(replace(refusal(2), identity="bob"))
    log.stop()

    *each, bob, folded = lines(path)
    assert [one["event"] for one in each] == ["request.refused"] * EACH_MAX
    assert bob["identity"] == "bob"
    assert (folded["event"], folded["detail"]["count"]) == ("request.refused_again", 92)
    assert (folded["identity"], folded["resource"]) == (identity, "/secret/1")
    assert log.figures()["audit_left_out_total"] == 0


def test_a_minute_later_a_caller_has_lines_again(tmp_path: Path) -> None:
    """What was folded before has its line by then."""
    path, clock = tmp_path / "audit.jsonl", ManualClock()
    log = log_of(path, clock)
    for _ in range(10):
        log.note(refusal(1))
    clock.advance(60_000)
    log.start()
    log.note(change(1))
    log.stop()
    folded = [each["detail"]["count"] for each in lines(path) if "again" in each["event"]]

    assert folded == [2]
    assert not log._folding.takes(refusal(1))


def test_callers_without_end_are_few_in_memory(tmp_path: Path) -> None:
    """Beyond a thousand in a minute the others count as one."""
    log = log_of(tmp_path / "audit.jsonl", refusals_per_second_max=10_000)
    for number in range(3 * CALLERS_MAX):
        log.note(refusal(number))

    assert len(log._folding._by_caller) == CALLERS_MAX + 1


@pytest.mark.parametrize("text", ["\x01" * 1_020, "é" * 500, "/a" * 500, "\U0001f512" * 99])
def test_the_text_of_a_refusal_is_short_as_it_is_written(tmp_path: Path, text: str) -> None:
    """Each of its texts has at most 128 bytes, however it is escaped; a short one is whole."""
    path = tmp_path / "audit.jsonl"
    event = replace(refusal(), resource=text, request=text, detail={"token_id": text, "n": 1})
    write(path, event, replace(refusal(), resource="/" + "a" * 127))

    first, second = lines(path)
    for shown in (first["resource"], first["request"], first["detail"]["token_id"]):
        assert 100 < len(json.dumps(shown)) - 2 <= 128
        assert shown.endswith("...")
    assert second["resource"] == "/" + "a" * 127
