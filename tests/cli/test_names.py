"""A name that begins with a slash is refused by every verb that takes one, with what to write."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from coordinator.cli.main import SECTIONS
from coordinator.cli.output import EXIT_REFUSED, EXIT_USAGE
from tests.cli.conftest import CommandLine

NAME = "/daily-report"
BEHIND: dict[str, tuple[str, ...]] = {
    "lock": ("--", "true"),
    "elect": ("--", "true"),
    "once": ("--every", "1h", "--", "true"),
    "borrow": ("--of", "a,b", "--", "true"),
    "hold": (),
    "unlock": ("1",),
    "extend": ("1", "--by", "1"),
    "hand-over": (),
    "counter": (),
    "bucket": ("--rate", "1", "--burst", "1"),
    "flag": (),
    "barrier": (),
    "latch": ("2",),
    "locks": (),
    "why": (),
    "why-lost": (),
    "grants": (),
    "ask": ("--reason", "why"),
    "revoke": ("--by", "ann", "--reason", "why"),
    "diagnose": (),
    "services": (),
    "queue": (),
    "jobs": (),
    "commit-log": (),
}
"""The verbs that take a name, and what is behind it."""


def test_every_verb_that_takes_a_name_is_in_the_table() -> None:
    """A new one is asked, too."""
    named = {
        verb.name
        for _, verbs in SECTIONS
        for verb in verbs
        if any(each.name == "name" and isinstance(each, click.Argument) for each in verb.params)
    }
    assert named == set(BEHIND)


@pytest.mark.parametrize("verb", BEHIND)
def test_a_path_is_no_name(coordinator: CommandLine, verb: str) -> None:
    """Neither for what takes something nor for what only looks."""
    refused = coordinator(verb, NAME, *BEHIND[verb])
    _check(refused.exit_code, refused.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "get", NAME),
        ("config", "set", NAME, "a=1"),
        ("config", "history", NAME),
        ("config", "diff", NAME, "1", "2"),
        ("config", "rollback", NAME, "1"),
        ("once", NAME, "--", "true"),
        ("set", "/a", "1", "--if-held", f"{NAME}:1"),
        ("grants", NAME, "--election"),
    ],
)
def test_a_path_is_no_name_elsewhere(coordinator: CommandLine, arguments: tuple[str, ...]) -> None:
    """In options, and behind verbs of verbs."""
    refused = coordinator(*arguments)
    _check(refused.exit_code, refused.stderr)


def test_a_path_is_no_name_of_a_configuration(coordinator: CommandLine, tmp_path: Path) -> None:
    """As it is rendered."""
    (tmp_path / "template").write_text("{a}")
    out = str(tmp_path / "out")
    refused = coordinator("render", str(tmp_path / "template"), "--from", NAME, "--out", out)
    _check(refused.exit_code, refused.stderr)


def _check(exit_code: int, stderr: str) -> None:
    assert exit_code in (EXIT_REFUSED, EXIT_USAGE), stderr
    assert "write 'daily-report'" in stderr
