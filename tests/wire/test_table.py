"""The table of routes: which route a target has, by the short way and by the long one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinator.errors import CoordinatorError
from coordinator.wire.routes.route import Route
from coordinator.wire.routes.table import RouteTable


async def answer(_request: object) -> Any:
    raise AssertionError("nobody asks")


def route(method: str, template: str, operation_id: str) -> Route:
    return Route(method=method, template=template, handler=answer, operation_id=operation_id)


TREE = [
    route("GET", "/v1/tree", "read_root"),
    route("GET", "/v1/tree/{path}", "read_znode"),
    route("PUT", "/v1/tree/{path}", "set_data"),
]
LOCKS = [route("GET", "/v1/locks/{name}", "get_lock")]
SPECIAL = [route("GET", "/v1/tree/special", "special")]


def found(table: RouteTable, method: str, target: str) -> str:
    try:
        return table.find(method, target).operation_id
    except CoordinatorError as error:
        return f"{error.code}: {error.message}"


@pytest.mark.parametrize("routes", [[*TREE, *LOCKS], [*TREE, *SPECIAL], LOCKS], ids=len)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH"])
@pytest.mark.parametrize(
    "target",
    [
        "/v1/tree", "/v1/tree/", "/v1/tree/a", "/v1/tree/a/b?stat", "/v1/tree/?children",
        "/v1/tree//a", "/v1/tree/%2e%2e", "/v1/tree/special", "/v1/tree/spe%63ial", "/v1/tree?a=/",
        "/v1/%74ree/a", "http://host/v1/tree/a", "/v1/trees/a", "/v1/locks/tree", "/v1/locks/",
    ],
)  # fmt: skip
def test_the_short_way_below_the_tree_finds_what_the_long_one_does(
    routes: list[Route], method: str, target: str
) -> None:
    table, long = RouteTable(routes), RouteTable(routes)
    cast("Any", long)._tree = None

    assert found(table, method, target) == found(long, method, target)
