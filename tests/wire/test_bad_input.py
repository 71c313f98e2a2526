"""Bad input from a seed: nothing crashes, hangs, logs a traceback, or answers without a reason."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

from coordinator.errors import REGISTRY
from tests.wire.chance import Chance
from tests.wire.serving import Api

REQUESTS = int(os.environ.get("COORDINATOR_BAD_INPUT", "1500"))


@pytest.mark.parametrize("seed", [1, 2])
async def test_bad_input_is_answered_with_a_reason(
    api: Api, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Every answer is a success or a problem of the tree; the member goes on as before."""
    chance = Chance(seed)
    caplog.set_level(logging.DEBUG)
    for number in range(REQUESTS // 2):
        method, path, headers, data = chance.request()
        shown = f"seed {seed}, request {number}: {method} {path} {headers} {data[:300]!r}"
        headers.setdefault("Coordinator-Timeout-Ms", "100")
        try:
            async with asyncio.timeout(1.5):
                reply = await api.call(method, path, headers=headers, data=data)
        except TimeoutError:
            is_stream = "/v1/watch" in path or "observe" in path
            is_wait = method == "POST" and path.startswith(("/v1/locks", "/v1/elections"))
            assert is_stream or is_wait, shown
            continue

        assert reply.status in {200, 201, 304} or 400 <= reply.status < 600, shown
        assert reply.status != 500, shown
        if reply.status >= 400 and method != "HEAD":
            assert reply.code in REGISTRY, shown
            assert len(reply.raw) < 4_000, shown
    records = [each for each in caplog.records if each.exc_info or each.levelno >= logging.WARNING]
    assert not [each for each in records if each.name.startswith(("coordinator", "aiohttp"))]
    assert (await api.get("/health/ready")).status == 200
