"""``coordinator learn``: the stories about locks, on a live cluster of this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.ending_signals import ending_signals
from coordinator.cli.output import EXIT_SIGNAL_BASE, failing_well, note, one_line
from coordinator.cli.parent_death import dying_with_parent
from coordinator.errors import BadArgumentsError, CoordinatorError

if TYPE_CHECKING:
    from coordinator.learn.film import Step
    from coordinator.learn.page_server import PageServer
    from coordinator.learn.stage import Venue

EXIT_UNEXPECTED = 1


@click.command()
@click.option("--list", "is_list", is_flag=True, help="List every story, in an order to read.")
@click.option("--script", metavar="NAME", help="Play one story here, without a browser.")
@click.option(
    "--fencing",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Whether the store checks tokens.",
)
@click.option(
    "--members",
    type=click.Choice(["1", "3", "5"]),
    default="3",
    show_default=True,
    help="How many members to start.",
)
@click.option("--join", "endpoints", metavar="URLS", help="Play on this development cluster.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0.1, max=10),
    default=1.0,
    show_default=True,
    help="0.5 plays twice as fast; leases last 2 s at the least.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the film of --script into FILE.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Serve the page here, on loopback; 0 takes a free port.",
)
@failing_well
def learn(
    is_list: bool,
    script: str | None,
    fencing: str,
    members: str,
    endpoints: str | None,
    pace: float,
    record: Path | None,
    port: int,
) -> None:
    """Play stories about locks on a live cluster: in a browser, or here.

    Starts three members on this machine, two clients in processes of their own and a store. The
    page freezes a client (SIGSTOP), kills the leader and cuts a member off; everything is recorded,
    and can be played again step by step. Never on a cluster for production: with --join it
    joins one of `coordinator dev`.

    \b
    Examples:
      coordinator learn                                   # prints the address of the page
      coordinator learn --list
      coordinator learn --script freeze-ray
      coordinator learn --script freeze-ray --fencing off # the damage
      coordinator learn --script redlock-clock-jump --record film.json
    """
    if is_list:
        from coordinator.learn.catalog import in_words

        click.echo(in_words())
        return
    if script is not None:
        story = _play(script, fencing == "on", int(members), endpoints, pace, record)
        sys.exit(_run(story))
    sys.exit(_run(_serve(int(members), endpoints, pace, port)))


def _run(work: Coroutine[Any, Any, int]) -> int:
    """Run it; TERM and HUP end it as Ctrl-C does: its processes are ended, its files removed."""
    heard: list[int] = []

    async def main() -> int:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "asyncio.run makes one"

        def stop(number: int) -> None:
            if not heard:  # a second one would break off the cleaning up
                heard.append(number)
                task.cancel()

        for number in ending_signals():
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        return EXIT_SIGNAL_BASE + heard[0]


async def _play(
    name: str, is_fenced: bool, members: int, endpoints: str | None, pace: float,
    record: Path | None,
) -> int:  # fmt: skip
    from coordinator.learn.crowds import CROWDS
    from coordinator.learn.scripts import SCRIPTS
    from coordinator.learn.side_by_side import films
    from coordinator.learn.stage import Stage

    simulated, live = films(), {**SCRIPTS, **CROWDS}
    if name in simulated:
        film, code = simulated[name], 0
        for step in film.steps:
            _print(step)
    elif name in live:
        scripted, code = live[name], 0
        if scripted.needs_members and endpoints is not None:
            raise BadArgumentsError(
                f"--script {name}: expected a cluster that this verb starts, for it kills members "
                f"or cuts them off; leave out --join"
            )
        async with placed(members, endpoints, pace) as place:
            stage = Stage(place, scripted.title, lock="report", has_actors=scripted.has_actors,
                          lease_s=scripted.lease_s, on_step=[_print])  # fmt: skip
            async with stage:
                stage.is_fenced = is_fenced
                try:
                    await scripted.play(stage)
                except (AssertionError, TimeoutError, CoordinatorError) as error:
                    note(f"the story did not come out: {error}")
                    code = EXIT_UNEXPECTED
            film = stage.film()
    else:
        known = ", ".join([*live, *simulated])
        raise BadArgumentsError(f"--script: expected one of {known}; found {name!r}")
    if record is not None:
        await asyncio.to_thread(record.write_text, film.to_json(), encoding="utf-8")
    return code


async def _serve(members: int, endpoints: str | None, pace: float, port: int) -> int:
    from coordinator.learn.page_server import PageServer

    async with placed(members, endpoints, pace) as place:
        return await show_until_stopped(PageServer(place, port))


async def show_until_stopped(server: PageServer) -> int:
    """Serve a page until Ctrl-C; say where it is."""
    async with server:
        click.echo(f"\nOpen this page, on this machine only:\n\n  {server.address}\n")
        click.echo("Ctrl-C ends it.")
        await _until_stopped()
    return 0


async def _until_stopped() -> None:
    is_stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, is_stopping.set)
    await is_stopping.wait()


@asynccontextmanager
async def placed(members: int, endpoints: str | None, pace: float) -> AsyncIterator[Venue]:
    """Give the cluster that stories play on: started here and ended after it, or joined."""
    from coordinator.learn.stage import Venue, development_members

    if endpoints is not None:
        urls = await development_members(endpoints)
        yield Venue(endpoints, urls, dying_with_parent(), None, pace)
        return
    from coordinator.cli.learn_members import LearnMembers, free_layout
    from coordinator.learn.scratch import scratch_directory

    with scratch_directory() as directory:
        started = LearnMembers(free_layout(directory / f"dev-{members}", members))
        note(f"starting {members} members ...")
        try:
            await started.start_all()
            yield Venue(started.endpoints, started.urls, dying_with_parent(), started, pace)
        finally:
            await started.stop()


def _print(step: Step) -> None:
    if step.text:
        zxid = "" if step.zxid is None else f"zxid {step.zxid}"
        click.echo(one_line(f"{step.at_ms / 1_000:7.2f} s  {zxid:<10} {step.text}"))
