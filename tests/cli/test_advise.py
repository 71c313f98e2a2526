"""The four questions before a distributed lock."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.advise import QUESTIONS, advice_for
from coordinator.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
ALL_NO = {each.name: False for each in QUESTIONS}
FLAGS = ["--no-single-node", "--no-native-cas", "--no-eventual-consistency", "--no-bottleneck"]


def test_without_a_reason_against_it_a_lock_is_advised() -> None:
    """With its token; a lock alone is not correct."""
    advice = advice_for(ALL_NO)

    assert advice.use_lock
    assert "fencing token" in advice.recommendation


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_each_yes_has_its_own_answer(question: object) -> None:
    """The first reason decides; only a bottleneck still needs a lock, a smaller one."""
    name = question.name  # type: ignore[attr-defined]
    advice = advice_for({**ALL_NO, name: True})

    assert advice.recommendation == question.alternative  # type: ignore[attr-defined]
    assert advice.use_lock == (name == "bottleneck")


def test_further_reasons_are_named_too() -> None:
    """All answers count, whatever their combination."""
    for answers in itertools.product((False, True), repeat=len(QUESTIONS)):
        given = dict(zip(ALL_NO, answers, strict=True))
        advice = advice_for(given)
        assert len(advice.also) == max(0, sum(answers) - 1)


def test_the_pages_it_names_are_there() -> None:
    """Every page exists, with a heading for the anchor."""
    pages = {advice_for(ALL_NO).page, *(each.page for each in QUESTIONS)}
    for page in pages:
        name, _, anchor = page.partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
        assert anchor in anchors, page


def test_flags_answer_in_words_and_in_json() -> None:
    """No cluster, no terminal."""
    result = CliRunner().invoke(cli, ["advise", *FLAGS[1:], "--single-node"])
    body = json.loads(CliRunner().invoke(cli, ["advise", *FLAGS, "--json"]).stdout)

    assert result.exit_code == 0
    assert "You do not need a distributed lock" in result.stdout
    assert body["use_lock"] is True
    assert body["answers"] == ALL_NO


def test_what_can_not_be_asked_has_to_be_given() -> None:
    """When nobody answers, or for a program, it names the options that are missing."""
    for arguments in (["--single-node"], ["--single-node", "--json"]):
        result = CliRunner().invoke(cli, ["advise", *arguments])

        assert result.exit_code == 2
        assert "--native-cas or --no-native-cas" in result.stderr


def test_it_asks_what_it_was_not_told() -> None:
    """Answered by y and n, one after the other."""
    result = CliRunner().invoke(cli, ["advise"], input="n\nn\nn\ny\n")

    assert result.exit_code == 0
    for question in QUESTIONS:
        assert question.text in result.stdout
    assert "Lock less" in result.stdout
