"""The ``coordinator`` command."""

from __future__ import annotations

import click

from coordinator.cli.advise import advise
from coordinator.cli.cluster import locks, sessions, status
from coordinator.cli.completion import completion
from coordinator.cli.connection import shared_options
from coordinator.cli.dev import dev
from coordinator.cli.diagnose import diagnose
from coordinator.cli.holding import elect, lock
from coordinator.cli.limits import limits
from coordinator.cli.past import grants, revoke
from coordinator.cli.recovering import recover
from coordinator.cli.secret import secret
from coordinator.cli.serving import serve
from coordinator.cli.transactions import multi
from coordinator.cli.watching import watch
from coordinator.cli.why import why, why_lost
from coordinator.cli.znodes import create, delete, get, ls, set_, stat

SECTIONS: tuple[tuple[str, tuple[click.Command, ...]], ...] = (
    ("Run a command while holding something", (lock, elect)),
    ("Read and write znodes", (create, get, set_, delete, ls, stat, watch, multi)),
    ("Ask about locks", (locks, why, why_lost, grants, revoke, diagnose, advise)),
    ("Look at the service", (status, sessions, limits)),
    ("Run members", (dev, serve, secret, recover)),
    ("Set up a shell", (completion,)),
)


class SectionedGroup(click.Group):
    """Lists its commands by what they are for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(command.name) for _, commands in SECTIONS for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.list_commands(ctx))
        for title, commands in SECTIONS:
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (str(each.name).ljust(width), each.get_short_help_str(80))
                        for each in commands
                    ]
                )


@click.group(
    cls=SectionedGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "auto_envvar_prefix": None,
    },
)
@shared_options
@click.version_option(package_name="coordinator", prog_name="coordinator")
def cli() -> None:
    """Fair locks with fencing tokens, elections, watches and a small tree of znodes.

    \b
    Start a cluster on this machine:   coordinator dev --members 3
    Do something under a lock:         coordinator lock search-index -- ./rebuild.sh
    See who holds what, and why:       coordinator locks; coordinator why search-index

    Every verb takes --endpoints (or COORDINATOR_ENDPOINTS), --json, and --timeout.

    \b
    Exit codes:
      0  done
      1  refused: it certainly had no effect, and never will
      2  wrong usage, or a wrong configuration
      3  unavailable: it certainly had no effect; try again
      4  unknown: it may have had its effect; look before you try again
    `lock` and `elect` have more: see their --help.
    """


for _, _commands in SECTIONS:
    for _command in _commands:
        cli.add_command(_command)


def main() -> None:
    """Run the command line of this process."""
    cli(prog_name="coordinator")
