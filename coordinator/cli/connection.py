"""The connection options that all verbs share, and the client made from them.

The options may come before or after the verb (``coordinator --json get /a``,
``coordinator get /a --json``); the later one counts. An option counts more than its variable,
wherever it is: ``connect`` reads the variable when no option has said anything. (click would
read it again for the verb, and put it over the option before the verb.)
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coordinator.cli.output import EXIT_SIGNAL_BASE, failing_well
from coordinator.cli.seconds import Seconds
from coordinator.errors import BadArgumentsError

if TYPE_CHECKING:
    from coordinator.client import AsyncClient, Connector, Transport
    from coordinator.client.connecting import TransportName

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

TRANSPORTS = ("auto", "stream", "http")
TIMEOUT_S = 10.0
LEASE_S = 10.0


@dataclass(slots=True)
class Settings:
    """The values of the shared options. Tests pass a ``transport`` in memory."""

    endpoints: str | None = None
    timeout_s: float | None = None
    is_json: bool = False
    operator: str = ""
    transport: Transport | TransportName | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    token_file: str | None = None

    def connector(self, *, lease_s: float = LEASE_S, label: str | None = None) -> Connector:
        """Return the way to a client of the chosen cluster; nothing is sent by this."""
        from coordinator.client import connect  # not for --help: it takes a while

        try:
            return connect(
                self.endpoints,
                timeout=self.timeout_s,
                session_timeout=lease_s,
                label=label,
                operator=self.operator,
                transport=self.transport,
                ca_file=self.ca_file,
                cert_file=self.cert_file,
                key_file=self.key_file,
                token_file=self.token_file,
            )
        except BadArgumentsError as error:
            raise click.UsageError(error.message) from None

    def run(self, verb: Callable[[AsyncClient], Awaitable[R]]) -> R:
        """Run ``verb`` with a client in an event loop of its own; SIGTERM ends it like Ctrl-C."""
        import asyncio

        async def work() -> R:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            async with self.connector() as client:
                return await verb(client)

        try:
            return asyncio.run(work())
        except asyncio.CancelledError:
            sys.exit(EXIT_SIGNAL_BASE + signal.SIGTERM)
        except KeyboardInterrupt:
            sys.exit(EXIT_SIGNAL_BASE + signal.SIGINT)

    def environ(self, lock: str, grant_id: str, fencing_token: int) -> dict[str, str]:
        """Return the environment of a command that runs under this grant."""
        environ = {
            **os.environ,
            "COORDINATOR_FENCING_TOKEN": str(fencing_token),
            "COORDINATOR_LOCK_NAME": lock,
            "COORDINATOR_GRANT_ID": grant_id,
        }
        if self.endpoints is not None:
            environ["COORDINATOR_ENDPOINTS"] = self.endpoints
        if isinstance(self.transport, str):
            environ["COORDINATOR_TRANSPORT"] = self.transport
        for name in _FILES:
            if (path := getattr(self, f"{name}_file")) is not None:
                # The command may work in another directory.
                environ[f"COORDINATOR_{name.upper()}_FILE"] = os.path.abspath(path)
        return environ


pass_settings = click.make_pass_decorator(Settings, ensure=True)


class SharedOption(click.Option):
    """An option of every verb: ``coordinator --help`` explains it, a verb's help only names it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what it says in a list of options; nothing in that of a verb."""
        return super().get_help_record(ctx) if ctx.parent is None else None


def name_shared_options(command: click.Command) -> None:
    """Let the help of ``command`` and of its own verbs end with the shared options it takes."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            name_shared_options(each)
    names = [each.opts[0] for each in command.params if isinstance(each, SharedOption)]
    if names:
        text = f"Shared options (see coordinator --help): {' '.join(names)}"
        lines = wrap(text, 76, break_on_hyphens=False)
        command.epilog = "\n".join(("\b", *lines))  # \b: click leaves these lines as they are


def _keep(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        settings = context.ensure_object(Settings)
        if value is not None:
            setattr(settings, field, value)

    return keep


def endpoint_options(function: F) -> F:
    """Add ``--endpoints``, ``--transport``, ``--json``, files for TLS and that of a token."""
    endpoints = click.option(
        "--endpoints",
        cls=SharedOption,
        metavar="URLS",
        expose_value=False,
        callback=_keep("endpoints"),
        help="URLs of members, separated by commas.  [env var: COORDINATOR_ENDPOINTS; "
        "default: http://127.0.0.1:7071]",
    )
    transport = click.option(
        "--transport",
        cls=SharedOption,
        type=click.Choice(TRANSPORTS),
        expose_value=False,
        callback=_keep("transport"),
        help="How requests travel: by the stream, by HTTP, or by the stream where a member speaks "
        "it.  [env var: COORDINATOR_TRANSPORT; default: auto]",
    )
    as_json = click.option(
        "--json",
        "is_json",
        cls=SharedOption,
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_keep("is_json"),
        help="Write results and errors as JSON, one document on each line.",
    )
    for name, what in reversed(_FILES.items()):
        function = _file_option(name, what)(function)
    return endpoints(transport(as_json(function)))


_FILES = {
    "ca": "The CA of the members' certificates, for https:// endpoints.",
    "cert": "This client's certificate, if members require one.",
    "key": "Its key, readable by you alone.",
    "token": "A file with the token that proves who you are.",
}


def _file_option(name: str, what: str) -> Callable[[F], F]:
    return click.option(
        f"--{name}-file",
        cls=SharedOption,
        type=click.Path(dir_okay=False),
        expose_value=False,
        callback=_keep(f"{name}_file"),
        help=f"{what}  [env var: COORDINATOR_{name.upper()}_FILE]",
    )


def lease_option(help_text: str) -> Callable[[F], F]:
    """Return ``--ttl``: the lease of what a command holds; the help says what it means for it."""
    return click.option(
        "--ttl",
        "lease_s",
        type=Seconds(min=0.5, max=3600),
        default=LEASE_S,
        show_default=True,
        metavar="SECONDS",
        help=help_text,
    )


def holder_options(function: F) -> F:
    """Add ``--by`` and ``endpoint_options`` to a command that opens a session to hold."""
    by = click.option(
        "--by",
        metavar="WHO",
        expose_value=False,
        callback=_keep("operator"),
        help="Your name as an operator: recorded, and you get a session even when all but "
        "their reserve are open.",
    )
    return endpoint_options(by(function))


def shared_options(function: F) -> F:
    """Add ``--timeout`` and ``endpoint_options`` to a command."""
    timeout = click.option(
        "--timeout",
        "timeout_s",
        cls=SharedOption,
        type=Seconds(min_open=True),
        metavar="SECONDS",
        expose_value=False,
        callback=_keep("timeout_s"),
        help="Overall deadline, over all members and retries.  [default: "
        f"{TIMEOUT_S:g}; 1.5 if nobody is there]",
    )
    return endpoint_options(timeout(function))


def verb(function: F) -> F:
    """Make a command of the client: the shared options, the Settings, the exit codes."""
    wrapped: Any = shared_options(pass_settings(failing_well(function)))
    return wrapped  # type: ignore[no-any-return]
