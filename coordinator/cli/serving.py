"""``serve``, ``recover`` and ``secret``: one member in the foreground, its data, its secret."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from coordinator.cli.output import EXIT_USAGE, failing_well, note, one_line
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
@click.option(
    "--check",
    "checked_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Start nothing: say all that keeps a member with this file from starting.",
)
@failing_well
def serve(config_path: Path | None, checked_path: Path | None) -> None:
    """Run one member in the foreground until SIGTERM or Ctrl-C.

    Variables COORDINATOR_<SECTION>_<KEY> override the file, for example
    COORDINATOR_HTTP_BIND_PORT=8071.

    --check reads the configuration and, if that is whole, looks at what it names: secret,
    certificates, data directory, ports. It exits with 0 if the member could start, with 2 if not.

    \b
    Examples:
      coordinator serve --config cluster-configs/three/member-1.toml
      coordinator serve --check cluster-configs/three/member-1.toml
    """
    if checked_path is not None:
        if config_path is not None:
            raise click.UsageError("expected --check FILE or --config FILE, found both")
        _say_what_is_in_the_way(checked_path)
        return
    config = load(config_path)
    if ensure_secret_on_one_machine(config.cluster):
        note(f"made the cluster's secret: {config.cluster.secret_file}")
    # Nearly all that a member makes to start stays: the collector only goes through it, for a tenth
    # of the time that a start takes. The server turns it on when it has started.
    gc.disable()
    # Imported here: no other verb needs the server, and each starts faster without it.
    from coordinator.node import server

    server.run(config)


def _say_what_is_in_the_way(path: Path) -> None:
    from coordinator.node.preflight import preflight  # it loads what only a member needs

    found = preflight(path)
    for problem in found.problems:
        click.echo(one_line(f"problem: {problem}"))
    for each in found.notes:
        click.echo(one_line(f"note: {each}"))
    if found.problems:
        sys.exit(EXIT_USAGE)
    config = found.config
    members = len(config.cluster.members) or 1
    click.echo(
        f"member {config.member.member_id} of {members} of cluster {config.cluster.name!r} can"
        f" start with {path}"
    )


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
