"""One mutant's trial: a private copy of the code, the patch laid over it, its detectors run there.

The working tree is only read. What a detector finds counts only if the same detector, at the same
place, finds nothing in the code as it is: a test that always fails would catch every mutant.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.patching import Patch, PatchError, apply_patch
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("coordinator", "tests", "pyproject.toml")
_WHAT_CHARS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one detector. ``found_by`` None: it noticed nothing, and skipped ``what``."""

    found_by: str | None
    where: str = ""
    what: str = ""
    node: str = ""
    """The test that failed, as pytest names it."""


NOTHING = Finding(None)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a mutant. ``verdict``: found, survived, or what went wrong with the trial."""

    name: str
    verdict: str
    finding: Finding
    seconds: float

    @property
    def is_found(self) -> bool:
        return self.verdict == "found"


class TrialError(Exception):
    """The detector broke, so nothing is known."""


class NoAnswerError(TrialError):
    """The detector ran out of time."""


@contextmanager
def private_copy(patch: Patch | None = None) -> Iterator[Path]:
    """Yield a temporary copy of the code, with ``patch`` laid over it.

    Compiled files come along, with the times of their sources: only what is patched is compiled.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        home = Path(name)
        skipped = shutil.ignore_patterns("*.pyc.*", "*.so", "patches")  # .pyc.N: half written
        for each in COPIED:
            source = ROOT / each
            if source.is_dir():
                shutil.copytree(source, home / each, ignore=skipped)
            else:
                shutil.copy2(source, home / each)
        if patch is not None:
            for path in apply_patch(patch, home):
                for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                    compiled.unlink()
        yield home


def detect(home: Path, find: str, limit_s: float) -> Finding:
    """Run one detector on the copy at ``home``; raises TrialError when it gives no answer.

    ``limit_s`` is for an idle machine."""
    limit_s = patient(limit_s)
    command = [sys.executable, "-m", "tests.mutants.hunt", f"{limit_s:.0f}", *find.split()]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, cwd=home, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise NoAnswerError(f"no answer in {limit_s:.0f} s") from None
        finally:
            process.kill()
    try:
        return Finding(**json.loads(output))
    except (ValueError, TypeError):
        said = (errors or output)[-_WHAT_CHARS_MAX:]
        raise TrialError(f"the detector broke ({process.returncode}): {said}") from None


def try_mutant(patch: Patch, limit_s: float) -> Result:
    """Lay the patch over a copy and run its detectors in order, until one finds it.

    Each detector may take ``limit_s``; one that gave no answer by then has found nothing.
    """
    began = time.monotonic()

    def result(verdict: str, finding: Finding = NOTHING) -> Result:
        return Result(patch.name, verdict, finding, time.monotonic() - began)

    try:
        with private_copy(patch) as home:
            find, finding = _first_finding(home, patch, limit_s)
        if finding.found_by is None:
            skipped = finding.what
            return result(f"no trial: {skipped}" if skipped else "survived")
        with private_copy() as clean:
            control = detect(clean, _narrowed(find, finding), limit_s)
    except (PatchError, TrialError) as error:
        return result(f"no trial: {error}")
    if control.found_by is not None:
        return result(f"no trial: the code as it is fails, too: {control}")
    return result("found", finding)


def _first_finding(home: Path, patch: Patch, limit_s: float) -> tuple[str, Finding]:
    skipped = ""
    for find in patch.finds:
        try:
            finding = detect(home, find, limit_s)
        except NoAnswerError:
            continue
        if finding.found_by is not None:
            return find, finding
        skipped = skipped or finding.what
    return "", Finding(None, what=skipped)


def _narrowed(find: str, finding: Finding) -> str:
    """Return the detector for the very place where something was found."""
    if not find.startswith("simulation"):
        is_one_word = finding.node and not finding.node.split()[1:]
        return f"pytest {finding.node}" if is_one_word else find
    seed = finding.where.removeprefix("seed ")
    kept = [part for part in find.split() if not part.startswith("seeds=")]
    return " ".join([*kept, f"seeds={seed}"])
