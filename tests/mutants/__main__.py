"""``python -m tests.mutants``: show that every planted bug is found, by what and where.

    python -m tests.mutants                        # all of them, on two cores
    python -m tests.mutants vote-not-synced        # one; says what it is and how it was noticed
    python -m tests.mutants --list

Ends with 1 if a mutant survives, or could not be tried.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.patching import load_patch, patch_names
from tests.mutants.trial import Result, try_mutant

LIMIT_S = 240.0
_COLUMNS = "{:<44} {:<48} {:<10} {:>5}"


def main() -> int:
    arguments = _arguments()
    names = arguments.names or patch_names()
    patches = [load_patch(name) for name in names]
    if arguments.list:
        for patch in patches:
            print(textwrap.fill(f"{patch.name}: {patch.wrong}", 100, subsequent_indent="    "))
        return 0
    print(_COLUMNS.format("mutant", "found by", "at", "s"), flush=True)
    results: list[Result] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda patch: try_mutant(patch, arguments.limit), patches):
            results.append(result)
            print(_line(result), flush=True)
            if arguments.names:
                patch = load_patch(result.name)
                for text in (patch.wrong, patch.matters, patch.source, result.finding.what):
                    print(textwrap.indent(textwrap.fill(text, 96), "    "))
    found = [result for result in results if result.is_found]
    print(f"{len(found)} of {len(results)} mutants were found")
    for result in results:
        if not result.is_found:
            print(f"{result.name}: {result.verdict}")
    return 0 if len(found) == len(results) else 1


def _line(result: Result) -> str:
    finding = result.finding
    by = finding.found_by or result.verdict.partition(":")[0].upper()
    return _COLUMNS.format(result.name, by[:48], finding.where, f"{result.seconds:.0f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants; all when none is named")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds for each detector, on an idle machine"
    )
    parser.add_argument("--list", action="store_true", help="say what each of them is")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
