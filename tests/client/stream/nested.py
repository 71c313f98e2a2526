"""A step of a task that runs the loop inside itself, as notebooks do with ``nest_asyncio``."""

from __future__ import annotations

import asyncio
from typing import Any


def run_inside(passes: int) -> None:
    """Let the loop go on for so many passes within the step of the task that runs now."""
    loop: Any = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    asyncio.tasks._leave_task(loop, task)
    try:
        for _ in range(passes):
            loop.call_soon(int)  # it does not wait, whatever there is to do
            loop._run_once()
    finally:
        asyncio.tasks._enter_task(loop, task)
