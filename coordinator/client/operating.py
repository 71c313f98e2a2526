"""What the core can do for operators: look at a member, and set the limits of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coordinator.client.calls import Call
from coordinator.model.limits import LimitsChange, LimitsView
from coordinator.model.status import Status
from coordinator.wire.codec import reader
from coordinator.wire.messages.operations import ANY_VERSION

T = TypeVar("T")


class OperatorVerbs:
    """The verbs of operators; the core brings ``_read`` and ``_write``."""

    async def status(self) -> Status:
        """Return what one member says of itself and the others."""
        return await self._read(Call("GET", "/v1/status"), reader(Status))

    async def limits(self) -> LimitsView:
        """Return the limits of the cluster: how much there may be of everything."""
        return await self._read(Call("GET", "/v1/limits"), reader(LimitsView))

    async def set_limits(
        self, limits: Mapping[str, int], *, by: str = "", expected_version: int = ANY_VERSION
    ) -> LimitsView:
        """Set limits by name; what exists beyond a lower one stays, only growth is refused.

        Args:
            by: who does this, for people.
            expected_version: that of the limits before; -1 accepts any.

        Raises:
            BadVersionError: they were changed meanwhile.
        """
        body = LimitsChange(dict(limits), by, expected_version)
        return await self._write(Call("PATCH", "/v1/limits", body), reader(LimitsView))

    async def _read(self, call: Call, parse: Callable[[Any], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> T:
        raise NotImplementedError
