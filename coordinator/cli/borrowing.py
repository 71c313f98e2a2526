"""``borrow``: a command that runs with one of several things, which no other has meanwhile."""

from __future__ import annotations

import asyncio
import sys

import click

from coordinator.cli.connection import Settings, holder_options, lease_option, pass_settings
from coordinator.cli.locks import WaitTime
from coordinator.cli.once import CommandError, Runner, exiting_when_stopped
from coordinator.cli.output import EXIT_NOT_IN_TIME, failing_well, note, show_error
from coordinator.cli.supervisor import Patience
from coordinator.errors import LockTimeoutError


@click.command()
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--of",
    "resources",
    metavar="NAMES",
    required=True,
    help="All of the pool, with commas between them; the same on each host.",
)
@click.option(
    "--timeout",
    "wait_s",
    type=WaitTime(),
    default=10.0,
    show_default=True,
    help="How long to wait for one; 0 tries once.",
)
@lease_option("How long it stays borrowed if this program dies.")
@click.option("--label", help="Name of this borrower in lists.")
@holder_options
@pass_settings
@failing_well
def borrow(
    settings: Settings,
    /,
    name: str,
    command: tuple[str, ...],
    resources: str,
    wait_s: float | None,
    lease_s: float,
    label: str | None,
) -> None:
    """Run COMMAND with a free resource of the pool NAME, such as a device or a licence.

    COMMAND finds it in COORDINATOR_RESOURCE, and the fencing token of this resource in
    COORDINATOR_FENCING_TOKEN. If it is about to be lost, COMMAND is ended before another host can
    borrow it.

    \b
    Exit codes:
      75   none was free in time             76   it was lost, and the command was ended
      77   no member could be reached, or none answered
      else the command's own, or 128 + n if signal n ended it

    \b
    Examples:
      coordinator borrow gpus --of gpu-0,gpu-1 --timeout 600 -- ./train.sh
    """
    from coordinator.recipes.waits import FOREVER

    runner = Runner(settings, command, Patience.for_lease(round(lease_s * 1000)))
    wait = FOREVER if wait_s is None else wait_s
    with exiting_when_stopped(settings, runner):
        try:
            asyncio.run(runner.borrow(lease_s, name, resources.split(","), wait, label))
        except CommandError as error:
            if error.ended.message:
                note(f"{name}: {error.ended.message}")
            sys.exit(error.ended.exit_code)
        except LockTimeoutError as error:
            show_error(error, settings.is_json)
            sys.exit(EXIT_NOT_IN_TIME)
