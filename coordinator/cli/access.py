"""The verb of access rights, ``access``: roles, identities, quotas, tokens, who may do what."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from coordinator.cli.connection import Settings, shared_options, verb
from coordinator.cli.output import EXIT_REFUSED, document, note, one_line, show_table
from coordinator.cli.quotas import quota, show_change
from coordinator.client import AsyncClient
from coordinator.clock import SystemClock
from coordinator.errors import ConfigError
from coordinator.model.access import Rule, Verb
from coordinator.model.access_requests import TokenReply
from coordinator.wire.codec import to_body
from coordinator.wording import moment

_DURATION = re.compile(r"([1-9]\d{0,5})([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class RuleText(click.ParamType[Rule]):
    """A rule as people write it: VERBS:PREFIX."""

    name = "VERBS:PREFIX"

    def convert(self, value: Any, param: Any, ctx: Any) -> Rule:
        """Return ``read,write:/config`` as a rule."""
        if isinstance(value, Rule):
            return value
        verbs, mark, prefix = value.partition(":")
        try:
            if mark and prefix:
                named = tuple([Verb(each.strip()) for each in verbs.split(",")])
                end = "*" if prefix.endswith("*") else ""
                return Rule(_encoded(prefix.removesuffix("*")) + end, named)
        except ValueError:
            pass
        self.fail(
            f"expected VERBS:PREFIX with verbs of {', '.join(Verb)}, such as "
            f"lock,read:/locks/payments*, found {value!r}",
            param,
            ctx,
        )


class Resource(click.ParamType[str]):
    """What a right is for, as people write it: a path, or a thing of the cluster."""

    name = "RESOURCE"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the path with the name of a lock or an election in it percent-encoded."""
        if not str(value).startswith(("/", "@")):
            self.fail(
                "expected a path, such as /config/payments or /locks/NAME for a lock, or a thing "
                f"of the cluster, such as @metrics, found {value!r}",
                param,
                ctx,
            )
        return _encoded(str(value))


def _encoded(path: str) -> str:
    """Return the path of a lock or an election as it is in the tree; any other as it is."""
    is_queue = path.startswith(("/locks/", "/elections/"))
    return quote(path, safe="/%") if is_queue else path


class Duration(click.ParamType[int]):
    """How long something lasts, in ms: 30m, 12h, 90d."""

    name = "DURATION"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return ``90d`` in milliseconds."""
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(value)
        if match is None:
            self.fail(f"expected a time such as 30m, 12h or 90d, found {value!r}", param, ctx)
        return int(match[1]) * _UNIT_MS[match[2]]


_out = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the token to this new file, for its owner only, instead of showing it.",
)
_replace = click.option(
    "--replace", is_flag=True, help="With --out: replace the file if it is there."
)
_expires_in = click.option(
    "--expires-in", type=Duration(), default=0, help="When the token expires.  [default: never]"
)


@click.group(invoke_without_command=True)
@shared_options
@click.pass_context
def access(context: click.Context) -> None:
    """Say who may do what: roles, identities and their tokens.

    Until `coordinator access init`, anyone on a member's machine may do everything. From then on
    each client needs a token (--token-file, COORDINATOR_TOKEN_FILE) or a certificate of an
    identity, and may do what a role of that identity allows.

    \b
    Examples:
      coordinator access init --out admin.token
      coordinator access role put payments lock,read:/locks/payments*
      coordinator access identity put payments-worker --role payments
      coordinator access token add payments-worker --out payments.token
      coordinator access can payments-worker lock /locks/payments:17
    """
    if context.invoked_subcommand is None:
        context.invoke(whoami)


@access.command()
@verb
def whoami(settings: Settings) -> None:
    """Show which identity this client has, and what it may do."""
    me = settings.run(lambda client: client.caller())
    if settings.is_json:
        click.echo(document(to_body(me)))
        return
    by = f", by {one_line(me.credential)}" if me.credential else ""
    click.echo(f"Access rights are {'on' if me.is_on else 'off: everybody may do everything'}.")
    click.echo(f"This client is {one_line(me.identity)}{by}.")
    if me.roles:
        _show_rules([(role.name, rule) for role in me.roles for rule in role.rules])


@access.command()
@click.option("--identity", default="admin", show_default=True, help="Its name.")
@_expires_in
@_out
@_replace
@verb
def init(
    settings: Settings, identity: str, expires_in: int, out: Path | None, replace: bool
) -> None:
    """Turn access rights on, and make the first administrator.

    From then on every client needs a token. This one's is shown once, or written to --out.
    """
    with _target(out, replace=replace) as write:
        write(
            settings,
            settings.run(
                lambda client: client.init_access(identity, expires_ms=_until(expires_in))
            ),
        )


@access.command()
@verb
def on(settings: Settings) -> None:
    """Turn access rights on again, with the present roles."""
    show_change(settings, settings.run(lambda client: client.set_access(True)))


@access.command()
@verb
def off(settings: Settings) -> None:
    """Turn access rights off: anyone on a member's machine may do anything.

    Clients on other machines then get only /health, unless http.access is "off".
    """
    show_change(settings, settings.run(lambda client: client.set_access(False)))


@access.group()
def role() -> None:
    """Make, list and drop roles: names for sets of rules."""


@role.command(name="put")
@click.argument("name")
@click.argument("rules", type=RuleText(), nargs=-1, required=True, metavar="VERBS:PREFIX...")
@verb
def put_role(settings: Settings, name: str, rules: tuple[Rule, ...]) -> None:
    """Make a role with these rules, or replace its rules.

    Verbs are read, write, lock, watch and admin, separated by commas. A prefix covers a znode and
    all below it; with * at its end all paths that begin so; / covers all paths, and @ the things
    of the cluster (@sessions, @limits, @metrics, @access). Names of locks are percent-encoded for
    you: /locks/payments:17 becomes /locks/payments%3A17.

    \b
    Examples:
      coordinator access role put payments lock,read:/locks/payments* read,watch:/config/payments
      coordinator access role put monitoring read:@metrics
    """
    show_change(settings, settings.run(lambda client: client.put_role(name, rules)))


@role.command(name="list")
@verb
def list_roles(settings: Settings) -> None:
    """List the roles and their rules."""
    roles = settings.run(lambda client: client.roles())
    if settings.is_json:
        click.echo(document([to_body(each) for each in roles]))
        return
    _show_rules([(each.name, rule) for each in roles for rule in each.rules])


def _show_rules(rules: Sequence[tuple[str, Rule]]) -> None:
    rows = [(role, ",".join(rule.verbs), rule.prefix) for role, rule in rules]
    show_table(("ROLE", "VERBS", "PREFIX"), rows)


@role.command(name="drop")
@click.argument("name")
@verb
def drop_role(settings: Settings, name: str) -> None:
    """Remove a role that no identity has."""
    show_change(settings, settings.run(lambda client: client.drop_role(name)))


@access.group()
def identity() -> None:
    """Make, list and drop identities: programs and people."""


@identity.command(name="put")
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="A role that it has; as often as needed.")
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    help="What else proves it: cert:URI of a client's certificate; as often as needed.",
)
@verb
def put_identity(
    settings: Settings, name: str, roles: tuple[str, ...], subjects: tuple[str, ...]
) -> None:
    """Make an identity with these roles, or replace its roles.

    Its tokens stay. The name `anonymous` stands for clients that show no credential.
    """
    show_change(settings, settings.run(lambda client: client.put_identity(name, roles, subjects)))


@identity.command(name="list")
@verb
def list_identities(settings: Settings) -> None:
    """List the identities, their roles and the ids of their tokens."""
    found = settings.run(lambda client: client.identities())
    if settings.is_json:
        click.echo(document([to_body(each) for each in found]))
        return
    rows = []
    for each in found:
        tokens = [
            token.token_id + (f" (until {moment(token.expires_ms)})" if token.expires_ms else "")
            for token in each.tokens
        ]
        rows.append(
            (each.name, ",".join(each.roles) or None, ", ".join([*tokens, *each.subjects]) or None)
        )
    show_table(("IDENTITY", "ROLES", "CREDENTIALS"), rows)


@identity.command(name="drop")
@click.argument("name")
@verb
def drop_identity(settings: Settings, name: str) -> None:
    """Remove an identity with its credentials, and end its sessions."""
    show_change(settings, settings.run(lambda client: client.drop_identity(name)))


@access.group()
def token() -> None:
    """Add tokens to identities, and revoke them."""


@token.command(name="add")
@click.argument("identity")
@click.option("--label", default="", help="What it is for, for people.")
@_expires_in
@_out
@_replace
@verb
def add_token(
    settings: Settings,
    identity: str,
    label: str,
    expires_in: int,
    out: Path | None,
    replace: bool,
) -> None:
    """Give IDENTITY one more token. It is shown once, or written to --out."""

    async def work(client: AsyncClient) -> TokenReply:
        return await client.add_token(identity, expires_ms=_until(expires_in), label=label)

    with _target(out, replace=replace) as write:
        write(settings, settings.run(work))


@token.command(name="drop")
@click.argument("token_id")
@verb
def drop_token(settings: Settings, token_id: str) -> None:
    """Revoke a token at once, on all members: the sessions opened with it end.

    TOKEN_ID is its id, or the whole token, of which only the id is sent.
    """
    show_change(settings, settings.run(lambda client: client.drop_token(token_id)))


@access.command()
@click.argument("who")
@click.argument("verb_", metavar="VERB", type=click.Choice([each.value for each in Verb]))
@click.argument("resource", type=Resource(), metavar="RESOURCE")
@verb
def can(settings: Settings, who: str, verb_: str, resource: str) -> None:
    """Say whether WHO may do VERB at a path; exit code 1 if not.

    \b
    Examples:
      coordinator access can payments-worker lock /locks/payments:17
      coordinator access can monitoring read @metrics
    """
    verdict = settings.run(lambda client: client.can(who, verb_, resource))
    if settings.is_json:
        click.echo(document(to_body(verdict)))
    else:
        click.echo(f"{'yes' if verdict.is_allowed else 'no'}: {one_line(verdict.reason)}")
    if not verdict.is_allowed:
        sys.exit(EXIT_REFUSED)


@access.command()
@click.argument("who")
@click.argument("verb_", metavar="VERB", type=click.Choice([each.value for each in Verb]))
@click.argument("resource", type=Resource(), metavar="RESOURCE")
@verb
def explain(settings: Settings, who: str, verb_: str, resource: str) -> None:
    """Show the rules by which WHO may do VERB, or what is missing."""
    verdict = settings.run(lambda client: client.can(who, verb_, resource))
    if settings.is_json:
        click.echo(document(to_body(verdict)))
        return
    click.echo(one_line(verdict.reason))
    if verdict.rules:
        _show_rules([(each.role, each.rule) for each in verdict.rules])


def _until(expires_in_ms: int) -> int:
    return SystemClock().wall_ms() + expires_in_ms if expires_in_ms else 0


class _Write:
    """Writes a token to where it belongs: a file that is there already as a draft, or standard
    output."""

    def __init__(self, draft: Path | None, out: Path | None, *, replace: bool) -> None:
        self._draft = draft
        self._out = out
        self._replace = replace

    def __call__(self, settings: Settings, reply: TokenReply) -> None:
        where = "" if self._out is None else str(self._out)
        if self._draft is not None and self._out is not None:
            self._draft.write_text(reply.token + "\n", encoding="ascii")
            if self._replace:
                os.replace(self._draft, self._out)
            else:
                os.link(self._draft, self._out)  # unlike a rename it replaces nothing
        if settings.is_json:
            shown = to_body(reply)
            if where:
                shown = {**shown, "token": "", "file": where}
            click.echo(document(shown))
        elif where:
            note(f"wrote the token {reply.token_id} of {reply.identity} to {where}")
        else:
            note(f"the token {reply.token_id} of {reply.identity}; it is not shown again:")
            click.echo(reply.token)


@contextmanager
def _target(out: Path | None, *, replace: bool) -> Iterator[_Write]:
    """Make a file for a token before there is one: a token that is written nowhere is lost."""
    if out is None:
        yield _Write(None, None, replace=False)
        return
    draft = out.with_name(f"{out.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        if out.exists() and not replace:
            raise ConfigError(f"{out}: expected no such file (or --replace), found one")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ConfigError(f"{out}: cannot write there: {error.strerror}") from None
    try:
        yield _Write(draft, out, replace=replace)
    finally:
        draft.unlink(missing_ok=True)


access.add_command(quota)
