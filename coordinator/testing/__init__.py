"""A test kit for users: a real cluster in this process, with faults of one line each.

With pytest no import is needed::

    def test_the_report_is_written_once(coordinator_cluster):
        with coordinator_cluster.connect() as client:
            ...

Elsewhere use ``with local_cluster() as cluster`` (or ``async with``). docs/testing-your-code.md
shows each fault. Start reading at ``beginning`` and ``cluster``; ``local_member``,
``member_links`` and ``ports`` are the server side, ``wired`` and ``client_wire`` the client side,
``plugin`` is for pytest. No other module of the product imports this room.

The names below are loaded when they are first used: pytest starts with the plugin wherever the
package is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.testing.beginning import local_cluster as local_cluster
    from coordinator.testing.client_wire import Deed as Deed
    from coordinator.testing.clocks import AdjustableClock as AdjustableClock
    from coordinator.testing.cluster import LocalCluster as LocalCluster
    from coordinator.testing.faults import Fault as Fault
    from coordinator.testing.wired import WiredConnector as WiredConnector

_HOMES = {
    "AdjustableClock": "coordinator.testing.clocks",
    "Deed": "coordinator.testing.client_wire",
    "Fault": "coordinator.testing.faults",
    "LocalCluster": "coordinator.testing.cluster",
    "local_cluster": "coordinator.testing.beginning",
    "WiredConnector": "coordinator.testing.wired",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'coordinator.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)
