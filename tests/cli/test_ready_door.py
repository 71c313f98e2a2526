"""``/ready`` and ``/live``, as a load balancer asks for them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import click
import pytest

from coordinator.cli.connection import Settings
from coordinator.cli.locks import job_of
from coordinator.cli.ready_door import Address, ReadyDoor
from coordinator.cli.standing import Candidacy, CandidacyPlan
from coordinator.errors import OutcomeUnknownError, UnavailableError
from coordinator.node.service_manager import ServiceManager
from coordinator.recipes.elections.succession import SuccessionRequest


async def asked(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


def test_ready_is_the_truth_of_the_moment() -> None:
    """200 while it leads, else 503; alive in both cases."""
    state: dict[str, Any] = {"is_leading": False, "epoch": 0}

    async def main() -> None:
        async with ReadyDoor(lambda: state).at(("127.0.0.1", 0)) as port:
            assert (await asked(port, b"GET /ready HTTP/1.1\r\n\r\n"))[0] == 503
            assert (await asked(port, b"GET /live HTTP/1.0\r\n\r\n"))[0] == 200
            state.update(is_leading=True, epoch=7)
            code, body = await asked(port, b"GET /ready?x HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (code, json.loads(body)) == (200, state)
            assert await asked(port, b"HEAD /ready HTTP/1.1\r\n\r\n") == (200, b"")

    asyncio.run(main())


def test_a_command_that_is_being_ended_does_not_lead() -> None:
    """From the moment on at which the guard asks it to end, though the lease is still certain."""
    standing = one_that_stands()
    assert standing.state()["is_leading"] is False
    for left_ms, is_leading in ((10_000, True), (2_300, True), (2_200, False), (0, False)):
        standing._lease = Left(left_ms)
        assert standing.state()["is_leading"] is is_leading


def one_that_stands() -> Candidacy:
    options = {"command": ("x",), "lease_s": 10.0, "grace_s": 2.0, "label": "a", "is_shell": False,
               "is_quiet": True, "probe": None}  # fmt: skip
    job = job_of("elections", "report", None, options)
    return Candidacy(Settings(), job=job, plan=CandidacyPlan(), manager=ServiceManager({}))


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (True, "report: handed over to b"),
        (False, "not handed over"),
        (OutcomeUnknownError("no answer"), "maybe handed over"),
        (UnavailableError("nobody is there"), "not handed over"),
    ],
)
def test_what_came_of_a_hand_over_is_said_as_it_is(
    outcome: bool | Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not known, or was not done, is not said to be done."""

    class Queue:
        async def release(self, _grant: Any) -> bool:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    nobody: Any = SimpleNamespace(grant=None)
    queue: Any = Queue()
    asyncio.run(
        one_that_stands()._has_handed_over(nobody, queue, nobody, SuccessionRequest(7, "b"))
    )
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


class Left:
    """A lease of which so much is left."""

    def __init__(self, left_ms: int) -> None:
        self._left_ms = left_ms

    def remaining_safe_ms(self) -> int:
        return self._left_ms


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /ready HTTP/1.1\r\n\r\n", 405),
        (b"\r\n\r\n", 400),
        (b"GET /ready HTTP/9\r\n\r\n", 400),
        (b"\xff\xff \x00\r\n\r\n", 400),
        (b"GET /ready HTTP/1.1\r\n" + b"x: y\r\n" * 5_000 + b"\r\n", 0),
    ],
)
def test_anything_else_is_refused(request_: bytes, code: int) -> None:
    """Nobody is believed to lead by mistake."""

    async def main() -> None:
        async with ReadyDoor(lambda: {"is_leading": True}).at(("127.0.0.1", 0)) as port:
            try:
                found, _ = await asked(port, request_)
            except ConnectionError:
                found = 0
            assert found == code

    asyncio.run(main())


def test_connections_are_bounded() -> None:
    """One beyond the most allowed is served, and who came first gives way, silent as it was."""

    async def main() -> None:
        async with ReadyDoor(lambda: {"is_leading": True}).at(("127.0.0.1", 0)) as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
            await asyncio.sleep(0.01)
            assert (await asked(port, b"GET /ready HTTP/1.1\r\n\r\n"))[0] == 200
            assert await idle[0][0].read() == b""
            writer = idle[1][1]
            writer.write(b"GET /ready HTTP/1.1\r\n\r\n")
            assert (await idle[1][0].read()).startswith(b"HTTP/1.1 200")
            for _, writer in idle:
                writer.close()

    asyncio.run(main())


def test_an_address_has_host_and_port() -> None:
    """IPv6 in brackets."""
    assert Address().convert("0.0.0.0:80", None, None) == ("0.0.0.0", 80)
    assert Address().convert("[::1]:8099", None, None) == ("::1", 8099)
    for wrong in ("8099", ":80", "a:", "a:99999", "a:-1", "a:b"):
        with pytest.raises(click.BadParameter):
            Address().convert(wrong, None, None)
