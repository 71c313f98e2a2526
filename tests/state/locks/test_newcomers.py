"""What may be created where queues are: in a queue, deeper below it, and what closes it."""

from __future__ import annotations

import pytest

from coordinator.state.commands import Create, CreateMode, Delete, Multi
from coordinator.state.locks.contender import HAND_MADE_NUMBER_MAX
from coordinator.state.outcomes import Created
from tests.state.locks.test_queues import Room


def sequential(prefix: str) -> Create:
    return Create(
        prefix,
        data=b"",
        mode=CreateMode.EPHEMERAL_SEQUENTIAL,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )


def by_hand(path: str) -> Create:
    return Create(
        path,
        data=b"",
        mode=CreateMode.EPHEMERAL,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )


def path_of(room: Room, operation: Create) -> str:
    created = room.apply(operation).unwrap()
    assert isinstance(created, Created)
    return created.path


def test_a_number_made_by_hand_in_an_empty_queue_may_be_0() -> None:
    """The refusal of another says behind which number it has to stand: -1 before the first."""
    room = Room()

    refused = room.apply(by_hand(f"/locks/a/lock-{HAND_MADE_NUMBER_MAX + 1}")).refusal

    assert refused is not None
    assert (refused.code, refused.fields["last_number"]) == ("BadArguments", -1)
    assert room.apply(by_hand("/locks/a/lock-0000000000")).refusal is None


def test_who_is_made_by_hand_and_goes_spends_no_number() -> None:
    """The next one gets the number that it would have got."""
    room = Room()
    room.apply(by_hand("/locks/a/lock-0000000000"))
    room.apply(Delete("/locks/a/lock-0000000000"))

    assert path_of(room, sequential("/locks/a/lock-")) == "/locks/a/lock-0000000000"


@pytest.mark.parametrize("queue", ["/locks/a", "/elections/b"])
def test_what_closes_a_queue_is_no_contender(queue: str) -> None:
    """It may come in the command of one, and with another that closes it; two contenders not."""
    room = Room()
    closing = [by_hand(f"{queue}/delay-000000000{number}") for number in (1, 2, 4)]
    contender = [by_hand(f"{queue}/lock-000000000{number}") for number in (3, 5, 6)]

    assert room.apply(Multi((closing[0], closing[1], contender[0]))).refusal is None
    assert room.apply(Multi((closing[2], contender[1]))).refusal is None
    named = Multi((contender[2], by_hand(f"{queue}/xdelay-0000000007")))
    assert room.apply(named).refusal is not None, "its name does not begin so"
