"""``python -m coordinator.guards.conformance MODULE:FACTORY``: all trials, and an exit status.

0: nothing found; 1: something is wrong; 2: there is no such factory.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from coordinator.guards.conformance.examination import PATIENCE_S, examine
from coordinator.guards.conformance.subject import Factory


def main(arguments: list[str] | None = None) -> int:
    """Examine the guard that is named; print what is found."""
    parser = argparse.ArgumentParser(
        prog="python -m coordinator.guards.conformance",
        description="Try a guard: does it keep out every writer with a stale fencing token?",
    )
    parser.add_argument("factory", metavar="MODULE:FACTORY", help="opens a value by its name")
    parser.add_argument(
        "--pause-in",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="stop writers in the lines of this package; by default in all that is not installed",
    )
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, metavar="SECONDS", help="when a call is stuck"
    )
    options = parser.parse_args(arguments)
    try:
        factory = _load(options.factory)
    except (ImportError, AttributeError, ValueError) as error:
        _say(f"{options.factory}: expected MODULE:FACTORY; {error}")
        return 2
    findings = 0
    for trial, finding in examine(factory, pause_in=options.pause_in, patience_s=options.patience):
        if finding is None:
            _say(f"ok     {trial.name}: {trial.rule}")
        else:
            findings += 1
            _say(f"WRONG  {finding}")
    _say("nothing found" if not findings else f"{findings} wrong")
    return 1 if findings else 0


def _load(name: str) -> Factory:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError("found no colon between two names")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    factory: Factory = getattr(import_module(module), attribute)
    return factory


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
