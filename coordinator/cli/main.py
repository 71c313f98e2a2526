"""The ``coordinator`` command."""

from __future__ import annotations

import difflib
import signal
from importlib import import_module
from typing import Any

import click

import coordinator
from coordinator.cli.connection import name_shared_options, shared_options
from coordinator.cli.output import EXIT_SIGNAL_BASE
from coordinator.node import build

_SECTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "Run a command while holding something",
        {"lock": "locks", "elect": "electing", "once": "once", "borrow": "borrowing"},
    ),
    (
        "Hold a lock by hand, whatever becomes of the shell",
        {"hold": "by_hand", "unlock": "by_hand", "extend": "by_hand"},
    ),
    (
        "Read and write znodes",
        {
            "create": "znodes",
            "get": "znodes",
            "set": "znodes",
            "delete": "znodes",
            "ls": "znodes",
            "stat": "znodes",
            "watch": "watching",
            "multi": "transactions",
            "export": "exporting",
            "import": "exporting",
            "mirror": "mirroring",
        },
    ),
    ("Say who is to be elected", {"hand-over": "handing_over"}),
    (
        "Count and wait together",
        {
            "counter": "meeting",
            "bucket": "meeting",
            "flag": "meeting",
            "barrier": "meeting",
            "latch": "meeting",
        },
    ),
    (
        "Configure programs together",
        {"config": "configuring", "render": "rendering"},
    ),
    (
        "Ask about locks",
        {
            "locks": "cluster",
            "why": "why",
            "why-lost": "why",
            "grants": "history",
            "ask": "asking",
            "revoke": "history",
            "diagnose": "diagnose",
            "advise": "advise",
        },
    ),
    (
        "See which programs are there, and what they have to do",
        {
            "services": "services",
            "queue": "queue",
            "jobs": "jobs",
            "commit-log": "commit_logs",
        },
    ),
    (
        "Look at the service",
        {
            "status": "status",
            "doctor": "doctor",
            "top": "top",
            "sessions": "cluster",
            "limits": "limits",
            "log-level": "log_level",
            "audit": "audit",
        },
    ),
    ("Say who may do what", {"access": "access"}),
    (
        "Run members",
        {
            "dev": "dev",
            "serve": "serving",
            "secret": "serving",
            "certs": "certs",
            "recover": "serving",
            "backup": "backup",
            "restore": "backup",
            "upgrade": "upgrade",
        },
    ),
    (
        "See it, break it, understand it",
        {"learn": "learn", "visualize": "visualize"},
    ),
    ("Set up a shell", {"completion": "completion"}),
)
"""The verbs, by what they are for, each with its module: one that is not used is not loaded."""
_HOMES = {name: home for _, verbs in _SECTIONS for name, home in verbs.items()}


def _load(name: str) -> click.Command:
    attribute = {"set": "set_", "import": "import_"}.get(name, name.replace("-", "_"))
    command = getattr(import_module(f"coordinator.cli.{_HOMES[name]}"), attribute)
    assert isinstance(command, click.Command), name
    name_shared_options(command)
    return command


def __getattr__(name: str) -> Any:
    if name == "SECTIONS":  # all of them, loaded; for tests
        return tuple((title, tuple(map(_load, verbs))) for title, verbs in _SECTIONS)
    raise AttributeError(f"module 'coordinator.cli.main' has no attribute {name!r}")


class SectionedGroup(click.Group):
    """Lists its commands by what they are for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the module of a verb, which no other verb pays for."""
        return _load(cmd_name) if cmd_name in _HOMES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; one that does not exist is refused with those that are written alike."""
        name = args[0]
        if name not in _HOMES and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, _HOMES, 3, 0.5)
            asked = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"No such command {name!r}.{asked}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; Ctrl-C while it loads ends as one while it runs, not as click's "Aborted!"
        with the code of a refusal."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(EXIT_SIGNAL_BASE + signal.SIGINT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs into the help, section by section."""
        width = max(len(name) for name in self.list_commands(ctx))
        for title, verbs in _SECTIONS:
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), _load(name).get_short_help_str(80)) for name in verbs]
                )


def _say_version(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"coordinator, version {coordinator.__version__} ({build.described()})")
        ctx.exit()


@click.group(
    cls=SectionedGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "auto_envvar_prefix": None,
    },
)
@shared_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the version, and whether it is compiled, and exit.",
)
def cli() -> None:
    """Fair locks with fencing tokens, elections, watches and a small tree of znodes.

    \b
    Start a cluster on this machine:   coordinator dev --members 3
    Run a command under a lock:        coordinator lock search-index -- ./rebuild.sh
    See who holds what, and why:       coordinator locks; coordinator why search-index

    Every verb takes the options below. Members with TLS want --ca-file; with access rights on,
    --token-file. Variables spare you both.

    \b
    Exit codes:
      0  done
      1  refused: it certainly had no effect, and never will
      2  wrong usage, or a wrong configuration
      3  unavailable: it certainly had no effect; try again
      4  unknown: it may have had its effect; look before you try again
    `lock`, `elect` and `once` have more: see their --help.
    """


def main() -> None:
    """Run the command line of this process."""
    cli(prog_name="coordinator")
