"""Fixtures of the tests of the pages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.wire.serving import Api, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as running:
        yield running
