"""The verb ``doctor``: what the members found of themselves, and how far they are from here."""

from __future__ import annotations

from coordinator.cli.output import EXIT_UNAVAILABLE
from tests.cli.conftest import CommandLine
from tests.cli.test_status import until_it_exits


def test_doctor_says_what_it_examined(coordinator: CommandLine) -> None:
    """One member alone has no network between members, and no clock to compare with."""
    found = coordinator.json("doctor")
    checks = {each["check"] for each in found["checks"]}
    text = coordinator.text("doctor")

    assert found["cluster"]["level"] == "good"
    assert {"files", "releases", "limits"} <= checks
    assert not {"clocks", "network"} & checks
    assert text.startswith("All is well: member 1 leads in term ")
    assert "\nlimits: The fullest limit is " in text


def test_doctor_exits_with_3_when_an_operator_is_wanted(coordinator: CommandLine) -> None:
    """A limit of which more than four fifths are used, which no status speaks of yet."""
    coordinator.text("create", "/room")
    coordinator.text("limits", "set", "ordinary_percent_max=100", "znodes_max=2")
    try:
        result = until_it_exits(coordinator, EXIT_UNAVAILABLE, "doctor")
    finally:
        coordinator.text("limits", "set", "ordinary_percent_max=95", "znodes_max=1000000")

    assert "limits: " in result.stdout
    assert "of znodes_max" in result.stdout
    assert "coordinator limits set znodes_max=NUMBER" in result.stdout


def test_nobody_there_is_exit_code_3() -> None:
    """As of every verb."""
    assert CommandLine("http://127.0.0.1:1")("doctor", "--timeout", "0.2").exit_code == (
        EXIT_UNAVAILABLE
    )
