"""Runs inside a copy of the code: does a detector notice that it is wrong? Prints JSON, one line.

    python -m tests.mutants.hunt 300 simulation seconds=30 seeds=0..19
    python -m tests.mutants.hunt 300 pytest tests/raft/test_engine_rows.py::test_row_20...

The number is how many seconds it may take; it ends by then even if nobody is left who waits for it.
``found_by`` is the promise or the test that failed; null when everything was kept. ``what`` says
then what was skipped, if anything was.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import coordinator

BROKEN = ("NameError", "AttributeError", "TypeError", "ImportError", "UnboundLocalError")
"""Errors of a patch that is no program any more, rather than a wrong one."""


def main() -> int:
    home = Path.cwd().resolve()
    assert coordinator.__file__ is not None
    assert Path(coordinator.__file__).resolve().is_relative_to(home), "another copy is imported"
    limit_s, kind, *arguments = sys.argv[1:]
    watchdog = threading.Timer(float(limit_s) + 5, os._exit, (3,))
    watchdog.daemon = True
    watchdog.start()
    output = sys.stdout
    sys.stdout = sys.stderr
    if kind == "simulation":
        logging.disable(logging.CRITICAL)  # tests, though, read what is logged
        found = hunt_by_simulation(dict(each.split("=", 1) for each in arguments))
    elif kind == "pytest":
        found = hunt_by_tests(arguments)
    else:
        raise SystemExit(f"expected simulation or pytest, found {kind!r}")
    print(json.dumps(found), file=output)
    return 0


def hunt_by_simulation(options: dict[str, str]) -> dict[str, Any]:
    """Run worlds, seed by seed, until a promise is broken."""
    from tests.simulation.world import Settings, simulate

    first, _, last = options["seeds"].partition("..")
    only = tuple(filter(None, options.get("faults", "").split(",")))
    settings = Settings(
        seconds=float(options["seconds"]), only_faults=only, keep_lines=1, stops_at_first=True
    )
    for seed in range(int(first), int(last or first) + 1):
        verdict = simulate(seed, settings)
        if not verdict.is_fine:
            violation = verdict.violations[0]
            what = f"{violation.what} (at {violation.at_s:.2f} s)"
            return _found(violation.promise, f"seed {seed}", what)
    return _found(None, "", "")


def hunt_by_tests(arguments: list[str]) -> dict[str, Any]:
    """Run tests until one fails."""
    import pytest

    class Noting:
        failed: tuple[str, str, str] | None = None
        passed = 0
        skipped = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and self.failed is None:
                crash = getattr(report.longrepr, "reprcrash", None)
                message = str(getattr(crash, "message", report.longrepr))
                self.failed = (report.nodeid.rpartition("::")[2], message, report.nodeid)
            self.passed += report.when == "call" and report.passed
            if report.skipped and not hasattr(report, "wasxfail"):
                self.skipped = f"{report.nodeid} was skipped: {report.longrepr}"

    noting = Noting()
    quiet = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    code = pytest.main([*quiet, *arguments], plugins=[noting])
    if noting.failed is not None:
        name, message, node = noting.failed
        return _found(name, "test", message) | {"node": node}
    assert code == 0, f"pytest ended with {code}"
    assert noting.passed or noting.skipped, "no test ran"
    return _found(None, "", noting.skipped)


def _found(found_by: str | None, where: str, what: str) -> dict[str, Any]:
    what = " ".join(what.split())[:400]
    if any(f"{name}(" in what or what.startswith(f"{name}:") for name in BROKEN):
        raise SystemExit(f"the patch is no program any more: {what}")
    return {"found_by": found_by, "where": where, "what": what}


if __name__ == "__main__":
    sys.exit(main())
