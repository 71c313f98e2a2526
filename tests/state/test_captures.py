"""A snapshot is of the moment of its capture, however late and slowly it is drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import Check, Command, Create, RequestId
from coordinator.state.machine import StateMachine
from tests.amount import drawn
from tests.state.locks.lock_histories import lock_history
from tests.state.strategies import SMALL_LIMITS
from tests.state.znode_histories import mixed_history

ROOMY = replace(SMALL_LIMITS, znodes_max=60, children_max=30, state_bytes_max=100_000)


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(60)))
def test_what_is_applied_while_it_is_drawn_is_not_in_it(seed: int) -> None:
    """Captured in the middle and drawn at the end, as one that was drawn at once; and the state
    that went on meanwhile is the one that was never captured, in its order, too."""
    make = lock_history if seed % 2 else mixed_history
    history = make(random.Random(seed), ROOMY, 120)
    straight, captured = StateMachine(ROOMY), StateMachine(ROOMY)
    drawn_late: list[tuple[bytes, object]] = []
    for index, command in enumerate(history, 1):
        straight.apply(command, index, 1)
        captured.apply(command, index, 1)
        if index in (40, 60, 61):
            drawn_late.append((b"".join(straight.snapshot()), captured.snapshot()))

    for at_once, pieces in drawn_late:
        assert b"".join(pieces) == at_once  # type: ignore[call-overload]
    assert b"".join(captured.snapshot()) == b"".join(straight.snapshot())


def test_a_capture_copies_no_znode_no_contender_and_no_client() -> None:
    """Counted by who is who: however many there are."""
    machine = StateMachine()
    for number in range(100):
        request = RequestId(f"c{number}", number=1, floor_index=number)
        machine.apply(Command(Create(f"/n{number}"), wall_ms=0, request=request), number + 1, 1)

    capture = machine._capture()

    parts = machine._tree._znodes.parts
    assert [id(part) for part in capture.znodes.parts] == [id(part) for part in parts]
    clients = machine._requests.free._base
    assert not isinstance(capture.requests.free, tuple)
    machine.apply(
        Command(Create("/later"), wall_ms=0, request=RequestId("c7", number=2, floor_index=0)),
        200,
        1,
    )
    assert "/later" not in capture.znodes
    assert [client_id for client_id, _ in capture.requests.free] == list(clients)
    assert next(reversed(machine._requests.free)) == "c7"
    assert dict(capture.requests.free)["c7"].highest == 1
    assert clients is machine._requests.free._base
    assert machine.data("/later") == b""


@pytest.mark.parametrize("seed", range(10))
def test_clients_that_come_and_go_while_it_is_drawn_are_not_in_it(seed: int) -> None:
    """The oldest are dropped meanwhile, and the member is as one that drew no snapshot."""
    chance = random.Random(seed)
    limits = MachineLimits(clients_max=30, request_window=4, remembered_bytes_max=40_000)
    drawing, resting = StateMachine(limits), StateMachine(limits)
    numbers = dict.fromkeys(range(60), 0)
    held: list[tuple[Iterator[bytes], bytes]] = []
    for index in range(1, 600):
        client = chance.randrange(60)
        numbers[client] += 1
        request = RequestId(f"c{client}", number=numbers[client], floor_index=index)
        command = Command(Check("/"), wall_ms=0, request=request)
        if index % 40 == 3:
            held.append((drawing.snapshot(), b"".join(drawing.snapshot())))
        if index % 40 == 25:
            pieces, at_once = held.pop(0)
            assert b"".join(pieces) == at_once
            del pieces
        assert drawing.apply(command, index, 1) == resting.apply(command, index, 1)
        assert list(drawing._requests.free) == list(resting._requests.free), "by last use"
    assert drawing._requests.counts() == resting._requests.counts()
    assert drawing.digest() == resting.digest()


def test_members_write_the_same_bytes_after_a_restore() -> None:
    """Of locks, too, which are in the order in which they came."""
    for seed in range(20):
        history = lock_history(random.Random(seed), ROOMY, 100)
        straight, restored = StateMachine(ROOMY), StateMachine(ROOMY)
        for index, command in enumerate(history, 1):
            straight.apply(command, index, 1)
            if index == 50:
                restored.restore(straight.snapshot())
            elif index > 50:
                restored.apply(command, index, 1)
        assert b"".join(restored.snapshot()) == b"".join(straight.snapshot())
