"""Counting and waiting for shell scripts: ``counter``, ``bucket``, ``flag`` and others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_NOT_IN_TIME, document, note
from coordinator.cli.seconds import Seconds

if TYPE_CHECKING:
    from coordinator.client import AsyncClient

_wait_option = click.option(
    "--wait",
    "wait_s",
    type=Seconds(),
    metavar="SECONDS",
    help=f"Wait up to this long; exit code {EXIT_NOT_IN_TIME} if it was not in time.",
)


@click.command()
@click.argument("name")
@click.option("--add", type=int, metavar="N", help="Add N, which may be below 0, and show the sum.")
@click.option("--at-least", type=int, metavar="N", help="Add only if the sum is N or more.")
@click.option("--at-most", type=int, metavar="N", help="Add only if the sum is N or less.")
@verb
def counter(
    settings: Settings, name: str, add: int | None, at_least: int | None, at_most: int | None
) -> None:
    """Show the counter NAME, or add to it exactly once.

    Exit code 1 says that the sum would be out of bounds; nothing was added.

    \b
    Examples:
      number=$(coordinator counter invoices --add 1)      # no other caller gets this number
      coordinator counter seats --add -1 --at-least 0 && ./book.sh
    """
    from coordinator.recipes.counter import VALUE_MAX, VALUE_MIN, Counter

    if add is None and (at_least is not None or at_most is not None):
        raise click.UsageError("expected --add with --at-least or --at-most, found none")

    async def work(client: AsyncClient) -> int | None:
        shared = Counter(client, name)
        if add is None:
            return await shared.value()
        least = VALUE_MIN if at_least is None else at_least
        most = VALUE_MAX if at_most is None else at_most
        return await shared.add(add, at_least=least, at_most=most)

    value = settings.run(work)
    if value is None:
        note(f"{name}: the sum would be out of bounds; nothing was added")
        sys.exit(1)
    _show(settings, str(value), {"name": name, "value": value})


@click.command()
@click.argument("name")
@click.option("--rate", type=float, required=True, metavar="N", help="Permits a second.")
@click.option("--burst", type=click.IntRange(min=1), required=True, help="Permits at most.")
@click.option(
    "--take",
    "count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many to take together.",
)
@_wait_option
@verb
def bucket(
    settings: Settings, name: str, rate: float, burst: int, count: int, wait_s: float | None
) -> None:
    """Take permits from the token bucket NAME, which limits a rate for all hosts together.

    Exit code 75 says that they were not there, at once or within --wait; none were taken.

    \b
    Examples:
      coordinator bucket mails --rate 5 --burst 20 --wait 60 && ./send.sh
    """
    from coordinator.recipes.token_bucket import TokenBucket

    async def work(client: AsyncClient) -> bool:
        return await TokenBucket(client, name, rate=rate, burst=burst).take(
            count, timeout=wait_s or 0
        )

    is_taken = settings.run(work)
    if settings.is_json:
        click.echo(document({"name": name, "taken": count if is_taken else 0}))
    if not is_taken:
        sys.exit(EXIT_NOT_IN_TIME)


@click.command()
@click.argument("name")
@click.option("--set", "value", metavar="VALUE", help="Set it; all waiting clients get VALUE.")
@click.option("--clear", is_flag=True, help="Clear it.")
@_wait_option
@verb
def flag(
    settings: Settings, name: str, value: str | None, clear: bool, wait_s: float | None
) -> None:
    """Show, set or clear the flag NAME, or wait until it is set.

    Without an option: exit code 1 if it is not set.

    \b
    Examples:
      coordinator flag schema-42 --set "by $(hostname)"
      coordinator flag schema-42 --wait 600 && ./start.sh
    """
    from coordinator.recipes.flag import Flag

    _expect_one(value is not None, clear, wait_s is not None)

    async def work(client: AsyncClient) -> bytes | None:
        shared = Flag(client, name)
        if value is not None:
            await shared.set(value.encode())
            return value.encode()
        if clear:
            await shared.clear()
            return b""
        return await shared.wait(wait_s or 0)

    found = settings.run(work)
    if found is None:
        sys.exit(1 if wait_s is None else EXIT_NOT_IN_TIME)
    if value is None and not clear:
        shown = found.decode("utf-8", errors="replace")
        _show(settings, shown, {"name": name, "value": shown})


@click.command()
@click.argument("name")
@click.option("--close", is_flag=True, help="Close it: clients that wait stay.")
@click.option("--open", "is_opened", is_flag=True, help="Open it: all waiting clients continue.")
@_wait_option
@verb
def barrier(
    settings: Settings, name: str, close: bool, is_opened: bool, wait_s: float | None
) -> None:
    """Close or open the barrier NAME, or wait until it is open.

    Without an option: exit code 1 if it is closed. A barrier is open at first.

    \b
    Examples:
      coordinator barrier imports --close
      coordinator barrier imports --wait 600 && ./import.sh
    """
    from coordinator.recipes.flag import Barrier

    _expect_one(close, is_opened, wait_s is not None)

    async def work(client: AsyncClient) -> bool:
        shared = Barrier(client, name)
        if close:
            await shared.close()
            return True
        if is_opened:
            await shared.open()
            return True
        return await shared.wait(wait_s or 0)

    if not settings.run(work):
        sys.exit(1 if wait_s is None else EXIT_NOT_IN_TIME)


@click.command()
@click.argument("name")
@click.argument("count", type=click.IntRange(min=1))
@click.option("--count-down", is_flag=True, help="Count once, and show how many are left.")
@click.option("--part", metavar="PART", help="With --count-down: count once for each PART.")
@_wait_option
@verb
def latch(
    settings: Settings,
    name: str,
    count: int,
    count_down: bool,
    part: str | None,
    wait_s: float | None,
) -> None:
    """Count down the latch NAME of COUNT, or wait until it is open.

    Without an option it shows how many counts are left.

    \b
    Examples:
      coordinator latch import-42 3 --count-down --part 2
      coordinator latch import-42 3 --wait 3600 && ./publish.sh
    """
    from coordinator.recipes.latch import Latch

    _expect_one(count_down, wait_s is not None)
    if part is not None and not count_down:
        raise click.UsageError("expected --count-down with --part, found none")

    async def work(client: AsyncClient) -> int:
        shared = Latch(client, name, count)
        if count_down:
            return await shared.count_down(part)
        if wait_s is not None and await shared.wait(wait_s):
            return 0
        return await shared.left()

    left = settings.run(work)
    _show(settings, str(left), {"name": name, "left": left})
    if wait_s is not None and left:
        sys.exit(EXIT_NOT_IN_TIME)


def _expect_one(*given: bool) -> None:
    if sum(given) > 1:
        raise click.UsageError("expected one of the options that say what to do, found several")


def _show(settings: Settings, text: str, body: dict[str, Any]) -> None:
    click.echo(document(body) if settings.is_json else text)
