"""Recording, writing and reading histories, and the command that judges a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.__main__ import main
from tests.history.checker import check
from tests.history.generation import Shape, generate
from tests.history.operations import (
    INDEFINITE_ERRORS,
    Operation,
    Recorder,
    read_history,
    to_json,
    write_history,
)
from tests.history.register import Register
from tests.history.shorthand import create, read, set_


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    """What is written is read again, unknown outcomes and odd names included."""
    history = [*generate(1, Shape(50, unknown_ratio=0.3)), create(1, 2, "ü\n\u2028")]
    path = tmp_path / "history.jsonl"

    write_history(path, history)

    assert read_history(path) == history


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        to_json(create(1, 2, "a")).replace('"call": 1', '"call": 1.5'),
        to_json(create(1, 2, "a")).replace('"call": 1', '"call": true'),
        to_json(create(1, 2, "a")).replace('"return": 2', '"return": null'),
        to_json(create(1, 2, "a")).replace('"return": 2', '"return": 0'),
        to_json(create(1, 2, "a")).replace('"key": "/a"', '"key": 7'),
        to_json(create(1, 2, "a")).replace('"input": {', '"input": 7, "other": {'),
        to_json(create(1, None, "a")).replace('"return": null', '"return": 7'),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    """A line that is no operation is refused with its number, not skipped."""
    path = tmp_path / "history.jsonl"
    path.write_text(to_json(create(1, 2, "a")) + "\n" + line + "\n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"history\.jsonl:2: "):
        read_history(path)


@pytest.mark.parametrize("error", sorted(INDEFINITE_ERRORS))
def test_an_indefinite_error_cannot_be_recorded_as_a_failure(error: str) -> None:
    """The codes that mean "perhaps it happened" are no definite answer."""
    with pytest.raises(ValueError, match="unknown outcome"):
        set_(1, 2, "a", no=error)


@pytest.mark.parametrize("kind", ["", "write", "get"])
def test_a_kind_the_model_does_not_know_is_refused(kind: str) -> None:
    """A typing error in a recorder does not make its operations invisible."""
    with pytest.raises(ValueError, match="expected one of"):
        check([Operation("c", "/a", kind, {}, {}, 1, 2)], Register())


def test_the_recorder_numbers_every_event() -> None:
    """Calls and answers get numbers of their own, so nothing touches by chance."""
    recorder = Recorder()
    first = recorder.call("c1", "/a", "create", value="a")
    second = recorder.call("c2", "/a", "set", value="b")
    recorder.answered(first, version=0)
    lost = recorder.call("c1", "/a", "read")
    recorder.never_sent(lost)
    recorder.unknown(second)
    still_open = recorder.call("c1", "/a", "set", value="c")

    history = recorder.history()

    assert [(o.called_at, o.returned_at) for o in history] == [(1, 3), (2, None), (5, None)]
    assert [o.kind for o in history] == ["create", "set", "set"]
    assert still_open == 5
    assert recorder.open_count == 1


def test_the_recorder_moves_equal_times_apart() -> None:
    """With a clock that stands still the order of the events is kept."""
    recorder = Recorder(now=lambda: 40)
    handle = recorder.call("c", "/a", "create", value="a")
    recorder.answered(handle)
    recorder.answered(recorder.call("c", "/a", "read"), error="NoNode")

    history = recorder.history()

    assert [(o.called_at, o.returned_at) for o in history] == [(40, 41), (42, 43)]
    assert not check(history, Register()).is_ok


def test_the_command_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A good file: status 0, the verdict first."""
    path = tmp_path / "good.jsonl"
    write_history(path, generate(1, Shape(300, 5, unknown_ratio=0.2)))

    status = main([str(path)])

    assert status == 0
    assert capsys.readouterr().out.startswith("ok: 300 operations (")


def test_the_command_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad file: status 1, the key, the answers that contradict, the prefix, what did not fit."""
    path = tmp_path / "bad.jsonl"
    noise = generate(1, Shape(300, 5))
    bad = [create(1, 2, "a"), set_(3, 4, "b", version=1), read(5, 6, "b"), read(7, 8, "a")]
    write_history(path, [*noise, *bad])

    status = main([str(path)])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert lines[0].startswith("not linearizable: 304 operations")
    assert lines[1:] == [
        "key /a: not linearizable",
        "  these answers contradict each other, whatever the others were:",
        "    [5, 6] c read  -> value='b'",
        "    [7, 8] c read  -> value='a'",
        "  longest linearizable prefix: 3 operations, in a legal order",
        "    [1, 2] c create value='a' -> done",
        "    [3, 4] c set value='b' -> version=1",
        "    [5, 6] c read  -> value='b'",
        "  after which the state is value='b' version=1 czxid=1.. mzxid=2.., "
        "the store at zxid 2 or later",
        "  could not be placed:",
        "    [7, 8] c read  -> value='a'",
    ]


def test_the_command_does_not_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too small a budget: status 2, and which key wants more."""
    path = tmp_path / "long.jsonl"
    write_history(path, generate(1, Shape(300, 1)))

    status = main([str(path), "--steps-max", "20"])

    assert status == 2
    assert "key /k0: undecided" in capsys.readouterr().out


def test_the_command_refuses_what_is_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing or broken file: status 3, no traceback."""
    path = tmp_path / "broken.jsonl"
    path.write_text("{\n", encoding="utf-8")

    assert main([str(path)]) == 3
    assert main([str(tmp_path / "missing.jsonl")]) == 3
    assert "broken.jsonl:1" in capsys.readouterr().err


def test_the_command_knows_other_models(tmp_path: Path) -> None:
    """The model is chosen by name, one key by --key."""
    path = tmp_path / "numbers.jsonl"
    good = Operation("c", "/a", "next", {}, {"number": 4}, 1, 2)
    again = Operation("c", "/b", "next", {}, {"number": 4}, 3, 4)
    write_history(path, [good, again, Operation("c", "/b", "next", {}, {"number": 4}, 5, 6)])

    assert main([str(path), "--model", "sequence"]) == 1
    assert main([str(path), "--model", "sequence", "--key", "/a"]) == 0
