"""What a verb that lists things says where there is nothing: a line, on standard error."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine


@pytest.mark.parametrize(
    ("arguments", "said", "exit_code"),
    [
        (("jobs",), "no job has run yet", 0),
        (("services",), "there is no group", 0),
        (("services", "web"), "nobody is registered in the group 'web'", 1),
        (("services", "web", "--up"), "nobody is up in the group 'web'", 1),
        (("hold",), "no lock is held by hand", 0),
        (("hold", "gpu", "--history"), "no hold by hand has ended", 0),
        (("queue", "mails", "--dead"), "no item is dead", 0),
        (("commit-log", "orders"), "there is no such transaction", 0),
    ],
)
def test_an_empty_list_is_said_to_be_one(
    coordinator: CommandLine, arguments: tuple[str, ...], said: str, exit_code: int
) -> None:
    """Nothing on standard output, for pipes; and nothing at all with --json."""
    for_people, for_programs = coordinator(*arguments), coordinator(*arguments, "--json")
    assert (for_people.stdout, for_people.exit_code) == ("", exit_code)
    assert said in for_people.stderr
    assert for_people.stderr.count("\n") == 1
    assert (for_programs.stdout, for_programs.stderr) == ("", "")
    assert for_programs.exit_code == exit_code
