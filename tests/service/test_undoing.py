"""What an attempt would undo is not begun by a member that stops."""

from __future__ import annotations

import warnings

import pytest

from coordinator.errors import NoLeaderError
from coordinator.service.queues import _quietly


def test_what_is_never_undone_is_never_begun() -> None:
    """A task that is cancelled before its first step leaves no coroutine behind unawaited."""
    begun: list[str] = []

    async def undo() -> None:
        begun.append("it")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _quietly(undo).close()

    assert begun == []


@pytest.mark.filterwarnings("error::RuntimeWarning")
async def test_undoing_says_whether_it_was_done() -> None:
    """True when it was; a refusal of the service is no certainty."""

    async def undo() -> None:
        pass

    async def undo_in_vain() -> None:
        raise NoLeaderError("nobody leads")

    assert await _quietly(undo)
    assert not await _quietly(undo_in_vain)
