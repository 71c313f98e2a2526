"""The run that plays now: one after another, each with a stage of its own.

A run is a script that plays itself, or an open stage whose deeds a person does. A new run ends the
one before. Pages follow it line by line, from its beginning.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.learn.crowds import CROWDS
from coordinator.learn.film import Film, Step
from coordinator.learn.scripts import SCRIPTS
from coordinator.learn.stage import FREEZE_S, Stage, Venue

PLAYED = {**SCRIPTS, **CROWDS}
OPEN_TITLE = "The open stage"
_LINES_AT_ONCE = 500


class Playing:
    """The runs on one place."""

    def __init__(self, place: Venue) -> None:
        self._place = place
        self._stage: Stage | None = None
        self._run = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_open = False
        """Whether the stage takes deeds of a person."""

    def description(self) -> dict[str, Any]:
        """Return what a page must know of the place."""
        members = self._place.members
        return {
            "has_stage": True,
            "members": list(self._place.urls),
            "has_members": members is not None,
            "can_cut": members is not None and members.can_cut,
            "freeze_ms": round(self._place.seconds(FREEZE_S) * 1_000),
            "scripts": [
                {"name": each.name, "title": each.title}
                for each in PLAYED.values()
                if members is not None or not each.needs_members
            ],
        }

    def film(self) -> Film | None:
        """Return what was recorded of this run so far."""
        return None if self._stage is None else self._stage.film()

    async def stop(self) -> None:
        """End the run."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def do(self, deed: dict[str, Any]) -> None:
        """Do what a page asks for.

        Raises:
            BadArgumentsError: there is no such deed, or not now.
        """
        name = deed.get("do")
        is_fenced = deed.get("is_fenced", True) is True
        if name == "open":
            await self._begin(OPEN_TITLE, None, is_fenced=is_fenced)
        elif name == "play":
            scripted = PLAYED.get(str(deed.get("script")))
            if scripted is None:
                raise BadArgumentsError(
                    f"play: expected a script of {', '.join(PLAYED)}, "
                    f"found {deed.get('script')!r:.40}"
                )
            await self._begin(scripted.title, scripted.name, is_fenced=is_fenced)
        else:
            self._on_stage(str(name), deed, is_fenced)

    def _on_stage(self, name: str, deed: dict[str, Any], is_fenced: bool) -> None:
        stage = self._stage
        if stage is None or not self._is_open:
            raise BadArgumentsError(f"{name}: expected an open stage that is ready; open one first")
        who = str(deed.get("who", ""))
        of_client: dict[str, Callable[[str], object]] = {
            "acquire": stage.acquire,
            "freeze": stage.freeze,
            "write": stage.write,
            "release": stage.release,
        }
        if name in of_client:
            if who not in stage.actors:
                raise BadArgumentsError(
                    f"{name}: expected a client of {', '.join(stage.actors)}, found {who!r:.40}"
                )
            of_client[name](who)
        elif name == "fence":
            stage.fence(is_fenced)
        elif name == "kill leader":
            stage.kill_leader()
        elif name == "cut":
            stage.cut(str(deed.get("member", "")))
        elif name == "heal":
            stage.heal()
        else:
            raise BadArgumentsError(f"expected a deed that there is, found {name!r}")

    async def _begin(self, title: str, script: str | None, *, is_fenced: bool) -> None:
        await self.stop()
        self._run += 1
        self._is_open = False
        scripted = None if script is None else PLAYED[script]
        stage = self._stage = Stage(
            self._place, title, lock=f"report-{self._run}",
            has_actors=scripted is None or scripted.has_actors,
            lease_s=None if scripted is None else scripted.lease_s,
            on_step=[self._on_step],
        )  # fmt: skip
        stage.is_fenced = is_fenced
        self._changed.set()
        self._task = asyncio.create_task(self._play(stage, script))

    async def _play(self, stage: Stage, script: str | None) -> None:
        try:
            async with stage:
                if not stage.is_fenced:
                    stage.fence(False)
                if script is not None:
                    await PLAYED[script].play(stage)
                    stage.recorder.step("film", "The end. Play it again, or step through it.",
                                        {("is_over",): True})  # fmt: skip
                    return
                self._is_open = True
                await asyncio.Event().wait()
        except (AssertionError, TimeoutError, CoordinatorError) as error:
            text = f"The run ended before its end: {error}. Play it once more."
            stage.recorder.step("film", text, {("is_over",): True})
        finally:
            self._is_open = False

    def _on_step(self, _step: Step) -> None:
        self._changed.set()

    async def lines(self, blank_s: float) -> AsyncIterator[bytes]:
        """Yield lines of JSON: a head for each run, then its steps; blank ones in silence."""
        run, sent = 0, 0
        while True:
            stage = self._stage
            if stage is not None and self._run != run:
                run, sent = self._run, 0
                yield _line({"run": run, "title": stage.recorder.title,
                             "source": stage.recorder.source})  # fmt: skip
            steps = [] if stage is None else stage.recorder.steps[sent : sent + _LINES_AT_ONCE]
            if steps:
                sent += len(steps)
                yield b"".join(_line(step.document()) for step in steps)
                continue
            if self._changed.is_set():  # by what was sent just now; nothing came since
                self._changed = asyncio.Event()
            try:
                async with asyncio.timeout(blank_s):
                    await self._changed.wait()
            except TimeoutError:
                yield b"\n"


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"
