"""A member that counts the calls of Python functions; ``bench.rounds --frames`` starts it.

On SIGUSR2 it writes the counts beside its configuration file and begins again at zero. Functions
are named ``room:file:function``; ``--profile`` of the interpreter's own would count C calls, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType


class Counts:
    """How often each function was called."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"frames-{os.getpid()}.json"
        self._counts: defaultdict[CodeType, int] = defaultdict(int)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._counts[frame.f_code] += 1

    def write(self, *_signal: object) -> None:
        """Write what was counted, and begin again."""
        counts, self._counts = self._counts, defaultdict(int)
        named: defaultdict[str, int] = defaultdict(int)
        sys.setprofile(None)
        for code, count in counts.items():
            named[_name(code)] += count
        sys.setprofile(self)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(named))
        part.rename(self._path)


def _name(code: CodeType) -> str:
    parts = Path(code.co_filename).parts
    for top in ("coordinator", "site-packages"):
        if top in parts:
            inner = parts[parts.index(top) + 1 :]
            return f"{top}/{inner[0]}:{'/'.join(inner[1:])}:{code.co_qualname}"
    return f"python:{parts[-1]}:{code.co_qualname}"


def main() -> None:
    counts = Counts(Path(sys.argv[-1]).parent)
    signal.signal(signal.SIGUSR2, counts.write)
    threading.setprofile(counts)
    sys.setprofile(counts)
    from coordinator.cli.entry import main as serve

    serve()


if __name__ == "__main__":
    main()
