"""``serve``, ``recover`` and ``secret``: one member in the foreground, its data, its secret."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from coordinator.cli.output import failing_well, note
from coordinator.node.config_file import load
from coordinator.node.secret_file import ensure_secret, ensure_secret_on_one_machine

F = TypeVar("F", bound=Callable[..., Any])


def config_option(text: str) -> Callable[[F], F]:
    """Add ``--config`` to a command; ``text`` says whose file it is."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=text,
    )


@click.command()
@config_option("The member's TOML file; without it the defaults: one member, alone, on loopback.")
@failing_well
def serve(config_path: Path | None) -> None:
    """Run one member in the foreground until SIGTERM or Ctrl-C.

    Variables COORDINATOR_<SECTION>_<KEY> override the file, for example
    COORDINATOR_HTTP_BIND_PORT=8071.

    \b
    Examples:
      coordinator serve --config cluster-configs/three/member-1.toml
      coordinator serve --config cluster-configs/single/member-1.toml
    """
    config = load(config_path)
    if ensure_secret_on_one_machine(config.cluster):
        note(f"made the cluster's secret: {config.cluster.secret_file}")
    # Nearly all that a member makes to start stays: the collector only goes through it, for a tenth
    # of the time that a start takes. The server turns it on when it has started.
    gc.disable()
    # Imported here: no other verb needs the server, and each starts faster without it.
    from coordinator.node import server

    server.run(config)


@click.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@failing_well
def secret(path: Path) -> None:
    """Write a new secret to PATH, unless there is one already.

    The file is readable by its owner only. Name it as secret_file in [cluster] of every member's
    configuration, and copy it to every machine with a member. Several may do this at once on a
    shared directory: one of them makes the secret, and all of them find the same.

    \b
    Example:
      coordinator secret /etc/coordinator/cluster-secret
    """
    click.echo(f"made {path}" if ensure_secret(path) else f"kept {path}", err=True)


@click.command()
@config_option("The TOML file of the member with the best data.")
@click.option("--yes", is_flag=True, help="Do it; without this, only say what would be done.")
@click.option("--by", default="", metavar="WHO", help="Who does it; kept with the data.")
@click.option("--reason", default="", metavar="WHY", help="Why; kept with the data.")
@click.option("--access-off", is_flag=True, help="Turn access rights off, too.")
@failing_well
def recover(config_path: Path | None, yes: bool, by: str, reason: str, access_off: bool) -> None:
    """Begin a cluster again from the data of one member.

    This is the last resort, if `coordinator status` says that members have no vote and starting all
    members does not help. Acknowledged writes that are not in these data are lost. All sessions
    end, with their locks. zxids, fencing tokens and sequence numbers continue far above all that
    were ever given out. The former data are kept.

    \b
    1. Stop all members.
    2. On each machine: coordinator recover --config FILE
       It changes nothing and describes the data. The best data have the highest last term, then
       the highest last entry.
    3. On the machine with the best data:
       coordinator recover --config FILE --yes --by WHO --reason WHY
    4. Move the data directories of all the others away, and start all members.

    It is also the way back if no token is left that may change access rights: --access-off turns
    them off, so that a new one can be made.

    \b
    Examples:
      coordinator recover --config member-1.toml
      coordinator recover --config member-1.toml --yes --by ops --reason "two disks were lost"
    """
    config = load(config_path)
    # Imported here: no other verb needs it, and each starts faster without it.
    from coordinator.node import recovery

    found = recovery.look_at(config)
    click.echo(found.in_words())
    if not yes:
        click.echo(
            f"This machine's clock says {recovery.time_now()}. If that is wrong, set it first:"
            " numbers continue by it.\n"
            "Nothing was changed. To begin again from these data, add --yes, --by and --reason."
        )
        return
    if not by or not reason:
        raise click.UsageError("--yes needs --by WHO and --reason WHY: they are kept with the data")
    click.echo(recovery.recover(config, by=by, reason=reason, turns_access_off=access_off))
