"""``multi``: several operations at once, all or none."""

from __future__ import annotations

from typing import Any, BinaryIO

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document
from coordinator.cli.znodes import if_held_option
from coordinator.client import AsyncClient, IfHeld
from coordinator.model.operations import Guarded, MultiReply, Result
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding, data_fields, decode
from coordinator.wire.if_held import read_if_held
from coordinator.wire.multi import read_multi


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@if_held_option
@verb
def multi(settings: Settings, file: BinaryIO, if_held: tuple[IfHeld, ...]) -> None:
    """Do several operations under one zxid, all or none.

    FILE (standard input if not given) holds the JSON that POST /v1/multi takes: either
    "operations", a list of create, set, delete, check and read; or "conditions", a list of checks,
    with "then" and "otherwise"; and maybe "if_held".

    \b
    Examples:
      echo '{"operations": [
              {"op": "check", "path": "/app", "expected_version": 0},
              {"op": "create", "path": "/app/a", "data": "1"},
              {"op": "delete", "path": "/app/b"}]}' | coordinator multi
      coordinator multi move-the-job.json --json
    """
    body = decode(file.read())
    request = read_multi(body)
    if_held = (*read_if_held(body), *if_held)

    async def work(client: AsyncClient) -> MultiReply:
        if isinstance(request, Guarded):
            return await client.guarded(
                request.conditions, request.then, request.otherwise, if_held=if_held
            )
        return await client.multi(request.operations, if_held=if_held)

    reply = settings.run(work)
    if settings.is_json:
        shown: dict[str, Any] = {} if reply.branch is None else {"branch": reply.branch}
        shown["results"] = [_result_body(each) for each in reply.results]
        click.echo(document({**shown, "zxid": reply.zxid}))
        return
    if reply.branch is not None:
        click.echo(reply.branch)
    for each in reply.results:
        click.echo(f"{each.op} {each.path}{_remark(each)}")


def _result_body(result: Result) -> dict[str, Any]:
    body: dict[str, Any] = {"op": result.op, "path": result.path}
    if result.op == "read":
        body.update(data_fields(result.data, Encoding.JSON))
    if result.op == "delete":
        body["deleted_count"] = result.deleted_count
    elif result.op != "check":
        body["stat"] = None if result.stat is None else to_body(result.stat)
    return body


def _remark(result: Result) -> str:
    if result.op == "delete":
        return f" ({result.deleted_count} deleted)"
    if result.op == "read" and result.stat is None:
        return " (no such znode)"
    if result.op == "read":
        return f" (version {result.stat.version if result.stat else 0}): {result.data!r}"
    return f" (version {result.stat.version})" if result.stat is not None else ""
