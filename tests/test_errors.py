"""The error tree: four facts for each class, and a way over the wire and back."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest

from coordinator import errors

KINDS = sorted(errors.REGISTRY.values(), key=lambda kind: kind.code)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.code for kind in KINDS])
def test_every_error_survives_the_wire(kind: type[errors.CoordinatorError]) -> None:
    """An error becomes problem details and comes back as the same class with its facts."""
    sent = kind("the lock is held", path="/locks/a", zxid=7)

    received = errors.from_problem(errors.to_problem(sent))

    assert type(received) is kind
    assert received.message == "the lock is held"
    assert received.fields == {"path": "/locks/a", "zxid": 7}
    assert received.path == "/locks/a"


@pytest.mark.parametrize("kind", KINDS, ids=[kind.code for kind in KINDS])
def test_every_error_states_its_facts(kind: type[errors.CoordinatorError]) -> None:
    """Code, status and a sentence are there; the codes are unique and the status fits."""
    assert kind.__doc__
    assert 400 <= kind.http_status < 600
    assert isinstance(kind.definite, bool)


def test_no_two_classes_share_a_code() -> None:
    """A code names one class, or the client would rebuild the wrong one."""
    codes = [kind.code for kind in errors._walk(errors.CoordinatorError)]

    assert len(codes) == len(set(codes))


def test_branches_agree_on_whether_they_are_definite() -> None:
    """What is under RequestError, SessionError or UnavailableError certainly did not happen."""
    for kind in KINDS:
        if issubclass(kind, errors.OutcomeUnknownError):
            assert not kind.definite, kind
        elif issubclass(kind, errors.RequestError | errors.SessionError | errors.UnavailableError):
            assert kind.definite, kind


def test_an_unknown_code_is_an_unknown_outcome() -> None:
    """A newer server's error that this client does not know is never read as a failure."""
    received = errors.from_problem({"code": "FromTheFuture", "detail": "?", "definite": True})

    assert isinstance(received, errors.OutcomeUnknownError)
    assert not received.definite


@pytest.mark.parametrize("kind", KINDS, ids=[kind.code for kind in KINDS])
def test_errors_can_be_copied_and_sent_to_other_processes(
    kind: type[errors.CoordinatorError],
) -> None:
    """A worker pool or a task runner can hand an error on without losing its facts."""
    error = kind("expected 3, found 4", current_version=4)

    for twin in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert type(twin) is kind
        assert (twin.message, str(twin), twin.args) == (error.message, str(error), error.args)
        assert twin.fields == {"current_version": 4}
        assert repr(twin) == f"{kind.__name__}('expected 3, found 4')"


BUILT_IN: dict[type[Exception], tuple[type[errors.CoordinatorError], ...]] = {
    TimeoutError: (errors.LockTimeoutError,),
    ConnectionError: (errors.UnavailableError, errors.ConnectionLostError),
    ValueError: (errors.BadArgumentsError,),
}
"""What else an error of ours is, and all below it."""


@pytest.mark.parametrize("kind", KINDS, ids=[kind.code for kind in KINDS])
def test_errors_are_those_of_python_too_where_it_has_one(
    kind: type[errors.CoordinatorError],
) -> None:
    """Each has the one that it should, and no number of the system is made up."""
    for built_in, ours in BUILT_IN.items():
        assert issubclass(kind, built_in) == issubclass(kind, ours), built_in
    is_system = issubclass(kind, (*BUILT_IN[TimeoutError], *BUILT_IN[ConnectionError]))
    assert issubclass(kind, OSError) == is_system
    if issubclass(kind, OSError):
        assert kind("message").errno is None


def _kinds(node: ast.expr | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else set()


def test_no_handler_of_an_error_of_pythons_hides_one_of_ours_below_it() -> None:
    """``except TimeoutError`` takes LockTimeoutError, too, so ours come first."""
    names = {each.__name__: each for each in (*BUILT_IN, OSError, *KINDS)}
    hidden = []
    for path in sorted(Path(errors.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            before: list[type[Exception]] = []
            for handler in node.handlers if isinstance(node, ast.Try) else ():
                found = [names[each] for each in _kinds(handler.type) if each in names]
                hidden += [
                    f"{path}:{handler.lineno}: {each.__name__}"
                    for each in found
                    if issubclass(each, tuple(before))
                ]
                before += found
    assert hidden == []
