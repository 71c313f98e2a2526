"""``coordinator dev``: a cluster on this machine, for developing against and for trying out.

1. Each member is a process of its own, ``coordinator serve`` on a file written here; a single one
   runs in this process.
2. Everything lies in ``DIR/dev-<members>``: files, secret, logs and data. Run again it goes on.
3. Nothing is started unless all ports are free. A member that ends is reported; the others go on.
4. The members end when this process does, even by ``kill -9`` (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.cli.dev_layout import (
    HOST,
    Layout,
    check_ports,
    command_name,
    environ_of_members,
    greeting,
    held_directory,
    prepare_directory,
    shown_path,
    start_member,
    write_files,
)
from coordinator.cli.ending_signals import ending_signals
from coordinator.cli.output import failing_well, note
from coordinator.cli.parent_death import dying_with_parent
from coordinator.client import HttpTransport, Request
from coordinator.client.calling.securing import ClientTls
from coordinator.errors import CoordinatorError
from coordinator.node.config_file import load
from coordinator.tls.files import TlsFiles

if TYPE_CHECKING:
    from coordinator.learn.page_server import PageServer

_READY_S = 60.0
_STOP_S = 10.0
_LOOK_S = 0.1
_LOG_TAIL_LINES = 15


@click.command()
@click.option(
    "--members",
    type=click.Choice(["1", "3", "5"]),
    default="1",
    show_default=True,
    help="How many; a single one runs inside this process.",
)
@click.option(
    "--data",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data"),
    show_default=True,
    metavar="DIR",
    help="Where data, logs and configuration files are kept.",
)
@click.option(
    "--client-port",
    type=click.IntRange(1, 65_531),
    default=7071,
    show_default=True,
    help="Clients reach member 1 here, member 2 one above, and so on.",
)
@click.option(
    "--member-port",
    type=click.IntRange(1, 65_531),
    default=7171,
    show_default=True,
    help="Members reach member 1 here, member 2 one above, and so on.",
)
@click.option("--tls", is_flag=True, help="Use TLS, with a CA and certificates made in --data.")
@failing_well
def dev(members: str, directory: Path, client_port: int, member_port: int, tls: bool) -> None:
    """Run a cluster on this machine, on loopback, until Ctrl-C.

    Run again with the same --data and --members, it uses the same data.

    \b
    Examples:
      coordinator dev
      coordinator dev --members 3 --data /tmp/try
      coordinator dev --members 3 --client-port 8071 --member-port 8171
      coordinator dev --members 3 --tls
    """
    count = int(members)
    place = directory.resolve() / f"dev-{count}"
    layout = Layout(place, count, client_port, member_port, tls)
    prepare_directory(layout)
    with held_directory(place):
        check_ports(layout)
        pages = story_pages(layout)
        if pages is not None:
            layout = replace(layout, learn_url=pages.address)
        write_files(layout)
        if count == 1:
            run_here(layout, pages)
        else:
            sys.exit(asyncio.run(Cluster(layout, pages).run()))


def story_pages(layout: Layout) -> PageServer | None:
    """Return what serves the page on which stories play here, not yet started; None with TLS: the
    clients of a story do not know the CA."""
    if layout.has_tls:
        return None
    from coordinator.learn.page_server import PageServer
    from coordinator.learn.stage import Venue

    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    urls = {str(member): layout.url(member) for member in layout.ids}
    return PageServer(Venue(layout.endpoints, urls, dying_with_parent()), port)


@asynccontextmanager
async def serving(pages: PageServer | None) -> AsyncIterator[None]:
    """Serve the page of the stories; without it, or if its port was taken, go on without it."""
    async with AsyncExitStack() as stack:
        if pages is not None:
            try:
                await stack.enter_async_context(pages)
            except OSError as error:
                note(f"no stories can be played here: {error.strerror}")
        yield


# --- one member, in this process


def run_here(layout: Layout, pages: PageServer | None) -> None:
    """Run the only member in this process until it is asked to stop."""
    config = load(layout.file(1), environ_of_members())
    # The server has this thread; another one says when it is ready, and serves the stories.
    has_ended = threading.Event()
    beside = threading.Thread(
        target=lambda: asyncio.run(_accompany(layout, pages, has_ended)), daemon=True
    )
    beside.start()
    from coordinator.node import server

    try:
        server.run(config)
    finally:
        has_ended.set()
        beside.join(_STOP_S)


async def _accompany(layout: Layout, pages: PageServer | None, has_ended: threading.Event) -> None:
    async with serving(pages):
        greeting_it = asyncio.create_task(_greet_when_ready(layout))
        while not has_ended.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(_LOOK_S)
        greeting_it.cancel()
        await asyncio.gather(greeting_it, return_exceptions=True)


async def _greet_when_ready(layout: Layout) -> None:
    transport = transport_to(layout)
    try:
        async with asyncio.timeout(_READY_S):
            while True:
                if await is_ready(transport, layout.url(1)):
                    break
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        note(f"the member is not ready after {_READY_S:g} s")
    else:
        click.echo(greeting(layout))
    finally:
        await transport.close()


# --- several members, each a process


class Cluster:
    """The processes of a development cluster; only they are ever signalled."""

    def __init__(self, layout: Layout, pages: PageServer | None) -> None:
        self._layout = layout
        self._pages = pages
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._is_stopping = asyncio.Event()
        self._is_hurried = asyncio.Event()

    async def run(self) -> int:
        """Start all, stay until asked to stop or until none is left; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self._on_stop_signal)
        click.echo(f"Starting {self._layout.members} members ...", err=True)
        try:
            for member in self._layout.ids:
                self._processes[member] = start_member(self._layout, member)
            if await self._wait_ready():
                async with serving(self._pages):
                    click.echo(greeting(self._layout))
                    await self._stay()
            return 0 if self._is_stopping.is_set() else 1
        finally:
            await self._stop()

    def _on_stop_signal(self) -> None:
        if self._is_stopping.is_set():
            self._is_hurried.set()
        self._is_stopping.set()

    async def _wait_ready(self) -> bool:
        """Return whether all members became ready; say what went wrong if not."""
        transport = transport_to(self._layout)
        waiting = set(self._layout.ids)
        try:
            async with asyncio.timeout(_READY_S):
                while waiting and not self._is_stopping.is_set():
                    for member in sorted(waiting):
                        if self._processes[member].poll() is not None:
                            self._report_end(member)
                            self._show_log(member)
                            return False
                        if await is_ready(transport, self._layout.url(member)):
                            waiting.discard(member)
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            note(f"not ready after {_READY_S:g} s: member {', '.join(map(str, sorted(waiting)))}")
            for member in sorted(waiting):
                self._show_log(member)
            return False
        finally:
            await transport.close()
        return not self._is_stopping.is_set()

    async def _stay(self) -> None:
        running = dict(self._processes)
        while running and not self._is_stopping.is_set():
            for member in [each for each in running if running[each].poll() is not None]:
                del running[member]
                self._report_end(member)
                others = ", ".join(map(str, running)) or "none"
                note(
                    f"members still running: {others}. To start it again: {command_name()} serve "
                    f"--config {shown_path(self._layout.file(member))}"
                )
            try:
                await asyncio.wait_for(self._is_stopping.wait(), _LOOK_S)
            except TimeoutError:
                pass  # not asked to stop yet; look again

    def _report_end(self, member: int) -> None:
        code = self._processes[member].returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        log = shown_path(self._layout.log(member))
        note(f"MEMBER {member} {how} by itself; its log: {log}")

    def _show_log(self, member: int) -> None:
        lines = self._layout.log(member).read_text(errors="replace").splitlines()
        for line in lines[-_LOG_TAIL_LINES:]:
            note(f"member {member}: {line}")

    async def _stop(self) -> None:
        """End all; a second Ctrl-C shortens the grace."""
        if any(each.poll() is None for each in self._processes.values()):
            click.echo("Stopping ...", err=True)
        await end_members(self._processes.values(), _STOP_S, self._is_hurried.is_set)


async def end_members(
    processes: Iterable[subprocess.Popen[bytes]],
    limit_s: float,
    is_hurried: Callable[[], bool] = lambda: False,
) -> None:
    """End processes that run: SIGTERM, a grace of ``limit_s`` unless hurried, SIGKILL."""
    running = [each for each in processes if each.poll() is None]
    for process in running:
        process.terminate()
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + limit_s
    while any(each.poll() is None for each in running) and loop.time() < ends_s:
        if is_hurried():
            break
        await asyncio.sleep(0.02)
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def transport_to(layout: Layout) -> HttpTransport:
    """Return what the members are asked by."""
    ca_file = str(layout.ca_file) if layout.has_tls else None
    return HttpTransport(tls=ClientTls(TlsFiles(None, None, ca_file)))


async def is_ready(transport: HttpTransport, url: str) -> bool:
    """Ask a member whether it is ready."""
    try:
        response = await transport.request(url, Request("GET", "/health/ready"), 1_000)
    except CoordinatorError:
        return False
    return response.status == 200
