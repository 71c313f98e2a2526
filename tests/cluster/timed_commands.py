"""One command of the command line in a process of its own, and how long it took."""

from __future__ import annotations

import os
import time

from click.testing import CliRunner

from coordinator.cli.main import cli


def timed_command(endpoints: str, command: str) -> tuple[float, int, str]:
    """Run ``command`` with a timeout of a second, its program behind `` -- ``.

    Returns:
        The seconds that it waited, which are not those of its own work; its exit code; what it
        printed.
    """
    os.environ["COORDINATOR_ENDPOINTS"] = endpoints
    name, *rest = command.split(" -- ")
    words = [*name.split(), "--timeout", "1", *(["--", *rest] if rest else [])]
    began, work_s = time.monotonic(), time.process_time()
    result = CliRunner().invoke(cli, words)
    waited_s = time.monotonic() - began - (time.process_time() - work_s)
    return waited_s, result.exit_code, result.output
