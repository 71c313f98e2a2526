"""``python -m tests.history FILE.jsonl``: judge a recorded history.

Exit status: 0 linearizable, 1 not linearizable, 2 undecided, 3 the file cannot be read as one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.history.checker import check
from tests.history.explanation import explain
from tests.history.models import MODELS
from tests.history.operations import Operation, read_history
from tests.history.search import STEPS_MAX, Budget, Verdict

_STATUS = {Verdict.OK: 0, Verdict.NOT_LINEARIZABLE: 1, Verdict.UNDECIDED: 2}
_BAD_FILE = 3
_EXPLAINED_MAX = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the file, print the verdict and the explanation; return the exit status."""
    options = _options(arguments)
    try:
        operations = read_history(options.file)
        return _judge(operations, options)
    except (OSError, ValueError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return _BAD_FILE


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines, one operation a line")
    parser.add_argument("--model", choices=sorted(MODELS), default="register")
    parser.add_argument("--steps-max", type=int, default=STEPS_MAX, help="for each key")
    parser.add_argument("--seconds-max", type=float, help="for the whole history")
    parser.add_argument("--key", help="judge this key only")
    return parser.parse_args(arguments)


def _judge(operations: Sequence[Operation], options: argparse.Namespace) -> int:
    if options.key is not None:
        operations = [o for o in operations if o.key == options.key]
    model = MODELS[options.model]()
    started = time.monotonic()
    result = check(operations, model, Budget(options.steps_max, options.seconds_max))
    seconds = time.monotonic() - started
    unknown_count = sum(operation.is_unknown for operation in operations)
    print(
        f"{result.verdict}: {len(operations)} operations ({unknown_count} of unknown outcome), "
        f"{len(result.keys)} keys, {result.steps} steps, {seconds:.2f} s"
    )
    for key in result.keys.values():
        if key.verdict is Verdict.UNDECIDED:
            print(f"key {key.key}: undecided after {key.steps} steps: raise the budget")
    bad = result.bad_keys()
    for key in bad[:_EXPLAINED_MAX]:
        of_key = [operation for operation in operations if operation.key == key.key]
        print(explain(key, of_key, model))
    for key in bad[_EXPLAINED_MAX:]:
        print(f"key {key.key}: not linearizable")
    return _STATUS[result.verdict]


if __name__ == "__main__":
    sys.exit(main())
