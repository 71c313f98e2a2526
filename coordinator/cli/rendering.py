"""``render``: a file made from a configuration, and a program that is signalled when it changes.

1. ``{{NAME}}`` is replaced by the value NAME: text as it is, anything else as JSON. A
   template has nothing else, and nothing in it is run.
2. The file is written beside itself and renamed, so a reader has a whole version.
3. The command runs after the first write, and after each write that changed the file. With
   ``--signal`` it runs once, for as long as this does, and gets the signal instead.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_SIGNAL_BASE,
    document,
    note,
)
from coordinator.cli.parent_death import dying_with_parent
from coordinator.errors import ConfigError, CoordinatorError
from coordinator.node.stable_files import replace_file

if TYPE_CHECKING:
    from coordinator.client import AsyncClient

TEMPLATE_BYTES_MAX = 1024 * 1024
_PLACE = re.compile(r"\{\{[ \t]*([^{}\n]+?)[ \t]*\}\}")
_GRACE_S = 10.0
"""For the command to end by itself after SIGTERM."""


class Signal(click.ParamType[signal.Signals]):
    """A signal by its name, with or without SIG."""

    name = "SIGNAL"

    def convert(self, value: Any, param: Any, ctx: Any) -> signal.Signals:
        """Return ``HUP`` as SIGHUP."""
        if isinstance(value, signal.Signals):
            return value
        try:
            return signal.Signals[f"SIG{str(value).upper().removeprefix('SIG')}"]
        except KeyError:
            self.fail(f"expected a signal such as HUP, found {value!r}", param, ctx)


@click.command()
@click.argument("template", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--from", "name", required=True, metavar="NAME", help="The configuration.")
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE"
)
@click.option("--signal", "number", type=Signal(), help="Keep COMMAND running, and send this.")
@click.option("--once", is_flag=True, help="End after the first write and its run of COMMAND.")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND...]")
@verb
def render(
    settings: Settings,
    template: Path,
    name: str,
    out: Path,
    number: signal.Signals | None,
    once: bool,
    argv: tuple[str, ...],
) -> None:
    """Write a file from TEMPLATE and a configuration, after each change.

    It writes FILE (--out) now, and again after each change of the configuration.

    {{KEY}} in TEMPLATE is replaced by that value: text as it is, anything else as JSON. COMMAND is
    run after the first write and after each that changed FILE. With --signal it is started once and
    gets the signal after each change; when it ends, this ends. If a version lacks a value, or FILE
    cannot be written, that is reported and FILE stays as it was; with --once it is an error.

    \b
    Examples:
      coordinator render nginx.tpl --from web --out /etc/nginx/nginx.conf -- nginx -s reload
      coordinator render app.tpl --from web --out app.ini --signal HUP -- ./app app.ini
      coordinator render app.tpl --from web --out app.ini --once
    """
    if number is not None and (once or not argv):
        raise click.UsageError("expected a COMMAND to keep running with --signal, and no --once")

    async def work(client: AsyncClient) -> int:
        from coordinator.recipes.configuration import Configuration

        shared, program = Configuration(client, name), _Program(argv, number)
        try:
            if once:
                values = (await shared.get()).values
                await asyncio.to_thread(write, template, values, out)
                return await program.reload()
            following = asyncio.create_task(_follow(shared, template, out, program))
            ended = asyncio.create_task(program.ended())
            try:
                await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
                return following.result() if following.done() else ended.result()
            finally:
                following.cancel()
                ended.cancel()
        finally:
            await program.stop()

    sys.exit(settings.run(work))


async def _follow(shared: Any, template: Path, out: Path, program: _Program) -> int:
    is_first = True
    async for snapshot in shared.watch():
        if snapshot.version == 0:
            note(f"{shared.name}: there is nothing yet, or no longer; waiting")
            continue
        try:
            was_changed = await asyncio.to_thread(write, template, snapshot.values, out)
        except CoordinatorError as error:
            note(f"version {snapshot.version}: {error.message}; {out} was left as it is")
            continue
        if was_changed or is_first:
            note(f"{out}: version {snapshot.version}")
            if code := await program.reload():
                note(f"the command ended with {code}")
        is_first = False
    raise AssertionError("a watch does not end")


class _Program:
    """The command: run again and again, or kept running and signalled."""

    def __init__(self, argv: tuple[str, ...], number: signal.Signals | None) -> None:
        self._argv = argv
        self._number = number
        self._process: asyncio.subprocess.Process | None = None
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting: asyncio.Task[None] | None = None

    async def reload(self) -> int:
        """Let it read the file; return its exit code, 0 if it is kept running."""
        if not self._argv:
            return 0
        if self._number is None:
            await self._start()
            assert self._process is not None, "it was started"
            return _shell_code(await self._process.wait())
        if self._process is None:
            await self._start()
            self._waiting = asyncio.create_task(self._wait())
        elif self._process.returncode is None:
            self._process.send_signal(self._number)
        return 0

    async def ended(self) -> int:
        """Return the exit code of a command that is kept running, when it ends."""
        return await asyncio.shield(self._exit_code)

    async def stop(self) -> None:
        """End it if it runs: SIGTERM, a grace, SIGKILL."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _GRACE_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _start(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, preexec_fn=dying_with_parent(signal.SIGTERM, hearing=self._number)
            )
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            note(f"{self._argv[0]}: {error.strerror}")
            sys.exit(EXIT_NOT_FOUND if is_missing else EXIT_NOT_EXECUTABLE)

    async def _wait(self) -> None:
        assert self._process is not None, "it was started"
        self._exit_code.set_result(_shell_code(await self._process.wait()))


def _shell_code(code: int) -> int:
    return EXIT_SIGNAL_BASE - code if code < 0 else code


def write(template: Path, values: Any, out: Path) -> bool:
    """Write ``out``; False if it was so already.

    Raises:
        ConfigError: a value is missing, or a file cannot be read or written.
    """
    try:
        with template.open("rb") as file:
            source = file.read(TEMPLATE_BYTES_MAX + 1)
        text = rendered(str(template), source, values).encode()
        return _replaced(out.resolve(), text)
    except OSError as error:
        where = error.filename or out
        raise ConfigError(f"{where}: expected to read or write it: {error.strerror}") from None


def rendered(name: str, source: bytes, values: Any) -> str:
    """Return a template with its values.

    Raises:
        ConfigError: a value is missing, or it is no template.
    """
    if len(source) > TEMPLATE_BYTES_MAX:
        raise ConfigError(f"{name}: expected at most {TEMPLATE_BYTES_MAX} bytes, found more")
    try:
        text = source.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: expected text of UTF-8, found other bytes") from None
    missing = sorted({each for each in _PLACE.findall(text) if each not in values})
    if missing:
        raise ConfigError(f"{name}: expected values for {', '.join(missing)}, found none")
    return _PLACE.sub(lambda found: _text(values[found[1]]), text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else document(value)


def _replaced(out: Path, data: bytes) -> bool:
    if out.exists():
        if not out.is_file():
            raise ConfigError(f"{out}: expected a regular file to replace, found another kind")
        if out.read_bytes() == data:
            return False
    replace_file(out, data)
    return True
