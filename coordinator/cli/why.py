"""``why`` and ``why-lost``: who holds a lock and why others wait; what became of a grant."""

from __future__ import annotations

from collections.abc import Iterable

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, one_line
from coordinator.client import AsyncClient, GrantRecord, GrantStory
from coordinator.errors import NoNodeError
from coordinator.wire.codec import to_body


@click.command()
@click.argument("name", shell_complete=lock_names)
@verb
def why(settings: Settings, name: str) -> None:
    """Say who holds the lock NAME, how long it is safe, and why others wait.

    If its holder waits for another lock, the holder of that lock is named as well, and so on.

    \b
    Examples:
      coordinator why daily-report
      coordinator why daily-report --json
    """
    found = settings.run(lambda client: client.why(name))
    _show(settings, to_body(found), found.sentences)


def _show(settings: Settings, body: object, sentences: Iterable[str]) -> None:
    if settings.is_json:
        click.echo(document(body))
        return
    for line in sentences:
        click.echo(one_line(line))


# --- what became of a grant


@click.command("why-lost")
@click.argument("name", shell_complete=lock_names)
@click.argument("grant", required=False)
@click.option("--election", "is_election", is_flag=True, help="NAME is an election.")
@verb
def why_lost(settings: Settings, name: str, grant: str | None, is_election: bool) -> None:
    """Say how and why a grant of the lock NAME ended.

    It says when its holder was last heard of, and which client was next.

    GRANT is its grant id (42-1337) or its fencing token (1337). Without one it is the last grant
    that did not end by its holder's release.

    \b
    Examples:
      coordinator why-lost daily-report
      coordinator why-lost daily-report 42-1337
      coordinator why-lost daily-report 1337 --json
      coordinator why-lost scheduler --election
    """
    story = settings.run(lambda client: story_of(client, name, grant, is_election=is_election))
    _show(settings, to_body(story), story.sentences)


async def story_of(
    client: AsyncClient, name: str, grant: str | None, *, is_election: bool = False
) -> GrantStory:
    """Return the story of a grant: by its id, by its token, or of the last one that was lost.

    Raises:
        NoNodeError: the history knows no such grant.
    """
    if grant is not None and not grant.isdecimal():
        return await client.grant(name, grant, is_election=is_election)
    found: GrantRecord | None = None
    token = None if grant is None else int(grant)
    async for each in client.grants(name, fencing_token=token, is_election=is_election):
        is_lost = each.how not in ("", "released")
        # Those that hold together end in any order.
        is_later = found is None or (each.ended_zxid or 0) >= (found.ended_zxid or 0)
        if is_later and (is_lost or token is not None):
            found = each
    if found is None:
        what = "a grant that was lost" if token is None else f"a grant with token {token}"
        raise NoNodeError(f"{name}: expected {what}, found none in the history")
    return await client.grant(name, found.grant_id, is_election=is_election)
