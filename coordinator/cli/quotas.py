"""The verb of quotas, ``access quota``: how much each identity may have, and has."""

from __future__ import annotations

import re
from typing import Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, show_table
from coordinator.client import AsyncClient
from coordinator.model.access import QUOTA_LIMITS
from coordinator.model.access_requests import AccessReply, QuotaView, Use
from coordinator.wire.codec import to_body

_SIZE = re.compile(r"(\d{1,13})(|KiB|MiB|GiB)")
_UNIT_BYTES = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
DEFAULT_QUOTA = -1
"""What stands for the limit for all identities."""


def show_change(settings: Settings, reply: AccessReply) -> None:
    """Show what a change of access rights came to."""
    if settings.is_json:
        click.echo(document(to_body(reply)))
    else:
        done = "Changed" if reply.was_changed else "It was so already"
        click.echo(f"{done}: revision {reply.revision}, at zxid {reply.zxid}.")


class QuotaOf(click.ParamType[int]):
    """A quota as people write it: a whole number, of bytes also 10MiB, or default."""

    name = "N"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return ``10MiB`` in bytes, and -1 for ``default``."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        if match is not None:
            return int(match[1]) * _UNIT_BYTES[match[2]]
        if value == "default":
            return DEFAULT_QUOTA
        self.fail(
            f"expected a whole number, such as 5000 or 10MiB, or default, found {value!r}",
            param,
            ctx,
        )


@click.group()
def quota() -> None:
    """Show and change how much each identity may have.

    A znode, with its bytes, counts against the identity that created it; so does a place in the
    queue of a lock while it waits. Without a quota of its own the limits znodes_per_identity_max,
    bytes_per_identity_max, waiters_per_identity_max and sessions_per_identity_max hold for an
    identity. Nothing is counted while access rights are off.

    \b
    Examples:
      coordinator access quota list
      coordinator access quota set payments-worker --znodes 10000 --bytes 50MiB
      coordinator access quota set payments-worker --znodes default
    """


@quota.command(name="set")
@click.argument("identity")
@click.option("--sessions", type=QuotaOf(), help="Open sessions.")
@click.option("--znodes", type=QuotaOf(), help="Znodes that it has created.")
@click.option("--bytes", "bytes_", type=QuotaOf(), help="Of these znodes: data, paths and more.")
@click.option("--waiters", type=QuotaOf(), help="Places in queues that do not hold.")
@verb
def set_quota(settings: Settings, identity: str, **values: int | None) -> None:
    """Change how much IDENTITY may have; what is not named stays as it is.

    What it has beyond a lower quota stays; only growth is refused.
    """
    changes = {
        what.rstrip("_"): None if value == DEFAULT_QUOTA else value
        for what, value in values.items()
        if value is not None
    }
    if not changes:
        raise click.UsageError("expected --sessions, --znodes, --bytes or --waiters, found none")
    show_change(settings, settings.run(lambda client: client.set_quota(identity, changes)))


@quota.command(name="show")
@click.argument("identity", required=False)
@verb
def show_quota(settings: Settings, identity: str | None) -> None:
    """Show how much IDENTITY, or this client, has of how much it may have."""

    async def work(client: AsyncClient) -> QuotaView:
        return await client.quota(identity or (await client.caller()).identity)

    found = settings.run(work)
    if settings.is_json:
        click.echo(document(to_body(found)))
        return
    rows = []
    for what in QUOTA_LIMITS:
        use: Use = getattr(found, what)
        whose = "its own" if use.is_own else QUOTA_LIMITS[what]
        rows.append((what, str(use.used), str(use.allowed), whose))
    show_table(("OF", "USED", "ALLOWED", "BY"), rows)


@quota.command(name="list")
@verb
def list_quotas(settings: Settings) -> None:
    """List the identities, and how much each has of how much it may have."""
    found = settings.run(lambda client: client.quotas())
    if settings.is_json:
        click.echo(document([to_body(each) for each in found]))
        return
    rows = [
        (each.identity, *[_used_of(getattr(each, what)) for what in QUOTA_LIMITS]) for each in found
    ]
    show_table(("IDENTITY", *[what.upper() for what in QUOTA_LIMITS]), rows)


def _used_of(use: Use) -> str:
    return f"{use.used} of {use.allowed}"
