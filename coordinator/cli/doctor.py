"""The verb ``doctor``: members examine themselves and each other; this machine the way there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_UNAVAILABLE, coloured, document, one_line
from coordinator.cli.status import COLOURS, lines_of_health
from coordinator.client import AsyncClient
from coordinator.clock import loop_seconds
from coordinator.errors import CoordinatorError
from coordinator.model.diagnosis import Diagnosis
from coordinator.wire.codec import to_body

_WAY_S = 2.0
_ECHOES = 3


@click.command()
@verb
def doctor(settings: Settings) -> None:
    """Examine the members: clocks, disks, network, files, releases, settings, certificates, limits.

    Says how the cluster is, then what each check found and what to do, and how long a round trip
    from here takes to each member. Needs admin on @members. Exits with 0 if all is well, or only a
    note is worth reading; with 3 if anything wants an operator, or no member can be reached; with 1
    if you may not.

    \b
    Examples:
      coordinator doctor
      coordinator doctor --json
    """

    async def work(client: AsyncClient) -> tuple[Diagnosis, dict[str, float | None]]:
        found = await client.examination()
        urls = {each.member_id: each.client_url for each in (await client.members()).members}
        ways = await asyncio.gather(*(_way_ms(settings, url) for url in urls.values() if url))
        return found, dict(zip((name for name, url in urls.items() if url), ways, strict=True))

    found, ways = settings.run(work)
    if settings.is_json:
        body = to_body(found)
        click.echo(
            document({"cluster": body["cluster"], "checks": body["checks"], "from_here_ms": ways})
        )
    else:
        for level, line in _lines_of(found, ways):
            click.echo(coloured(one_line(line), COLOURS[level]) if level else one_line(line))
    levels = {found.cluster.level, *(each.level for each in found.checks or ())}
    if levels & {"warn", "bad"}:
        sys.exit(EXIT_UNAVAILABLE)


def _lines_of(found: Diagnosis, ways: dict[str, float | None]) -> Iterator[tuple[str, str]]:
    """Return what is written for people, each line with its level; "" for what has none."""
    sentence, *more = lines_of_health(found.cluster)
    yield found.cluster.level, sentence
    for line in more:
        yield "", line
    for check in found.checks or ():
        yield check.level, f"{check.check}: {check.text}"
        if check.todo:
            yield "", f"  {check.todo}"
    for member_id, took_ms in ways.items():
        yield (
            "",
            f"from here: member {member_id} is not reached by its client_url."
            if took_ms is None
            else f"from here: a round trip to member {member_id} takes {took_ms:.1f} ms.",
        )


async def _way_ms(settings: Settings, url: str) -> float | None:
    """Return how long the shortest of a few round trips to a member takes; None if none came."""
    best = None
    connector = replace(settings, endpoints=url, timeout_s=_WAY_S).connector()
    try:
        async with connector as client:
            await client.status()  # connects
            for _ in range(_ECHOES):
                began = loop_seconds()
                await client.status()
                took_ms = round((loop_seconds() - began) * 1_000, 2)
                best = took_ms if best is None else min(best, took_ms)
    except CoordinatorError:
        pass
    return best
