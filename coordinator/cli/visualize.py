"""``coordinator visualize``: a film of a cluster, or of the trace of a simulated world."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import note
from coordinator.errors import BadArgumentsError

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.learn.film import Film

_MEMBER_S = 0.5
_CHARACTERS_MAX = 64 * 1024 * 1024
"""The length of a trace, of which not all becomes the film; a film has its own limit."""


@click.command()
@click.argument("file", required=False, type=click.File("r", encoding="utf-8"))
@click.option("--seconds", type=click.FloatRange(min=0.1, max=3_600), default=10.0,
              show_default=True, help="How long to record a cluster.")  # fmt: skip
@click.option("--path", default="/", show_default=True, help="Only events at and below this path.")
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILM",
              help="Write the film there.")  # fmt: skip
@click.option("--show", "is_shown", is_flag=True, help="Serve the page with the film, on loopback.")
@verb
def visualize(
    settings: Settings,
    file: IO[str] | None,
    seconds: float,
    path: str,
    output: Path | None,
    is_shown: bool,
) -> None:
    """Make a film of a cluster as it runs, or of FILE, and play it in a browser.

    FILE is a film, or the trace of a simulated world ("-" reads it from standard input): so a
    failing seed becomes a film. A film has paths, labels and session ids, and no data of znodes.

    \b
    Examples:
      coordinator visualize --seconds 30 -o film.json
      coordinator visualize film.json --show
      python -m tests.simulation --seed 7 --trace | coordinator visualize - --show
    """
    from coordinator.learn.film import parse_film
    from coordinator.learn.simulated import film_of_trace

    if output is None and not is_shown:
        raise BadArgumentsError("visualize: expected --output FILM, --show or both; found neither")
    if file is None:
        film = settings.run(lambda client: _record(settings, client, seconds, path))
    else:
        text = _read(file)
        film = parse_film(text) if text.lstrip().startswith("{") else film_of_trace(
            text.splitlines())  # fmt: skip
    note(f"{len(film.steps)} steps")
    if output is not None:
        output.write_text(film.to_json(), encoding="utf-8")
    if is_shown:
        sys.exit(asyncio.run(_show(film)))


def _read(file: IO[str]) -> str:
    try:
        text = file.read(_CHARACTERS_MAX + 1)
    except UnicodeDecodeError as error:
        raise BadArgumentsError(f"FILE: expected text of UTF-8, found: {error}") from None
    if len(text) > _CHARACTERS_MAX:
        raise BadArgumentsError(f"FILE: expected at most {_CHARACTERS_MAX} characters, found more")
    return text


async def _record(settings: Settings, client: AsyncClient, seconds: float, path: str) -> Film:
    from coordinator.learn.recording import record

    members = (await client.status()).members
    urls = {each.member_id: each.client_url for each in members if each.client_url}
    note(f"recording {len(members)} members for {seconds:g} s ...")
    async with AsyncExitStack() as stack:
        # A client for each, for one that is cut off says what it believes itself.
        asked = {
            url: await stack.enter_async_context(
                replace(settings, endpoints=url, timeout_s=_MEMBER_S).connector()
            )
            for url in urls.values()
        }

        async def ask(url: str) -> dict[str, Any]:
            status = await asked[url].status()
            return {name: getattr(status, name) for name in ("role", "term", "is_ready", "summary")}

        return await record(client, urls, seconds, path=path, ask=ask)


async def _show(film: Film) -> int:
    from coordinator.cli.learn import show_until_stopped
    from coordinator.learn.page_server import PageServer

    return await show_until_stopped(PageServer(None, film=film))
