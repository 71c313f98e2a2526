"""The error tree: four facts for each class, and a way over the wire and back."""

from __future__ import annotations

import copy
import pickle

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


def test_errors_can_be_copied_and_sent_to_other_processes() -> None:
    """A worker pool or a task runner can hand an error on without losing its facts."""
    error = errors.BadVersionError("expected 3, found 4", current_version=4)

    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert type(twin) is errors.BadVersionError
        assert twin.fields == {"current_version": 4}
