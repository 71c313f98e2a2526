"""Coverage-guided bytes for the decoders that outsiders reach (``python -m tests.fuzz.guided``).

::

    python -m tests.fuzz.guided messages -max_total_time=60

Needs ``atheris`` (not among the dependencies: it has wheels for few platforms). What it finds that
matters becomes an example of a test; the rest of ``tests/fuzz`` needs no tool. At the end it says
what the bytes came to; a run in which nothing went deeper than a refusal ends with 1.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["coordinator"]):
    from tests.fuzz.targets import LEAST, SEEDS, TARGETS

from tests.met import Met

NOTED_EVERY = 500


def fuzz(name: str, directory: Path) -> None:
    """Feed the target for as long as libFuzzer's options say; it ends the process by itself."""
    corpus, counts = directory / "corpus", directory / "counts"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS[name]()):
        (corpus / str(number)).write_bytes(seed)
    met, run_count = Met(), 0

    def run(data: bytes) -> None:
        nonlocal run_count
        run_count += 1
        met[TARGETS[name](data)] += 1
        if run_count % NOTED_EVERY == 0:
            counts.write_text(json.dumps(met))

    atheris.Setup([*sys.argv, str(corpus)], run)
    atheris.Fuzz()


def main() -> int:
    """Run the target that the first argument names; the others are libFuzzer's."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"usage: python -m tests.fuzz.guided {'|'.join(TARGETS)} [options]")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as directory:
        child = os.fork()
        if child == 0:
            fuzz(name, Path(directory))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        counts = Path(directory) / "counts"
        met = Met(json.loads(counts.read_text()) if counts.exists() else {})
    print(f"{name}: {dict(met.most_common())}")
    met.check(**LEAST[name])
    return status


if __name__ == "__main__":
    sys.exit(main())
