"""``services``: which programs are registered in groups, and what they say of themselves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, show_list
from coordinator.wording import moment

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes.groups.members import GroupMember


@click.command()
@click.argument("name", required=False)
@click.option("--up", is_flag=True, help="Only members that are up: neither draining nor down.")
@click.option("--watch", is_flag=True, help="Show the members again after each change.")
@verb
def services(settings: Settings, name: str | None, up: bool, watch: bool) -> None:
    """List the groups, or the members of the group NAME.

    Exit code 1 says that nobody is registered in NAME.

    \b
    Examples:
      coordinator services
      coordinator services web --up --json | jq -r .metadata.url
      coordinator services web --watch
    """
    if name is None:
        if up or watch:
            raise click.UsageError("expected the NAME of a group with --up or --watch, found none")
        _show_groups(settings, settings.run(_groups))
        return
    chosen = name

    async def work(client: AsyncClient) -> bool:
        from coordinator.recipes.group import Group

        group = Group(client, chosen)
        if not watch:
            return _show(settings, chosen, await group.members(), up)
        async with group.watch() as listings:
            async for members in listings:
                _show(settings, chosen, members, up)
        return True

    if not settings.run(work):
        sys.exit(1)


async def _groups(client: AsyncClient) -> list[tuple[str, int]]:
    from coordinator.recipes.base.maybe_there import listed
    from coordinator.recipes.group import ROOT

    found = await listed(client, ROOT)
    return [(unquote(name), stat.num_children) for name, stat in found]


def _show_groups(settings: Settings, groups: list[tuple[str, int]]) -> None:
    bodies = [{"group": name, "members": count} for name, count in groups]
    nothing = "there is no group; a program joins one by `Group(client, NAME).join()`"
    show_list(settings.is_json, bodies, ("GROUP", "MEMBERS"), groups, nothing)


def _show(settings: Settings, name: str, members: tuple[GroupMember, ...], up: bool) -> bool:
    chosen = [each for each in members if each.state == "up" or not up]
    rows = [
        (
            each.name,
            each.state,
            moment(each.since_ms),
            each.fencing_token,
            document(each.metadata),
            each.reason,
        )
        for each in chosen
    ]
    heads = ("MEMBER", "STATE", "SINCE", "TOKEN", "METADATA", "REASON")
    nothing = f"nobody is {'up' if up else 'registered'} in the group {name!r}"
    show_list(settings.is_json, map(_body, chosen), heads, rows, nothing)
    return bool(chosen)


def _body(member: GroupMember) -> dict[str, Any]:
    return {
        "name": member.name,
        "state": member.state,
        "reason": member.reason,
        "metadata": member.metadata,
        "fencing_token": member.fencing_token,
        "session_id": member.session_id,
        "since_ms": member.since_ms,
    }
