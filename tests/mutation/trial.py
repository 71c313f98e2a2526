"""The trial of machine-made mutants: one process collects the tests once, and forks for each.

In the child the code of one function is exchanged for the mutant's, wherever that function is held,
and the tests run until one fails. A child is bounded by the processor time that it uses, some times
what the tests take without a mutant; so a busy machine decides nothing. The files are only read.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType

import pytest

from tests.mutation.mutating import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
_SURVIVED, _KILLED, _BROKEN = 0, 1, 2
_CPU_TIMES = 4
_CPU_MORE_S = 3
_PLUGINS_LEFT_OUT = ("terminal", "cacheprovider", "xdist")
_WALL_MAX_S = 900
"""For who waits without working: no judgement of a mutant that works."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one mutant: "killed", "killed by time", "survived" or "broken"."""

    mutant: Mutant
    verdict: str
    cpu_s: float


def exchange(mutant: Mutant) -> bool:
    """Give every function of the mutant's place its code; False when there is no such function."""
    path = str(ROOT / mutant.module)
    code = mutant.code(path)
    found = False
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path:
            old = each.__code__
            if old.co_qualname == mutant.where and old.co_firstlineno == code.co_firstlineno:
                each.__code__ = code.replace(co_qualname=old.co_qualname)
                found = True
    return found


class Forking:
    """A pytest plugin: instead of running the tests once, runs them in a child for each mutant."""

    def __init__(self, several: list[Mutant]) -> None:
        self._several = several
        self.trials: list[Trial] = []
        self.control_cpu_s = 0.0
        self.problem = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or not session.items:
            self.problem = "the tests could not be collected"
            return True
        gc.unfreeze()  # what tests/conftest.py put aside: ``exchange`` has to find it
        status, self.control_cpu_s = self._in_child(session, None, 100_000)
        if status != _SURVIVED:
            self.problem = "the tests fail without any mutant"
            return True
        limit_s = int(self.control_cpu_s * _CPU_TIMES) + _CPU_MORE_S
        for mutant in self._several:
            status, cpu_s = self._in_child(session, mutant, limit_s)
            words = {_SURVIVED: "survived", _KILLED: "killed", _BROKEN: "broken"}
            self.trials.append(Trial(mutant, words.get(status, "killed by time"), cpu_s))
            _show(self.trials[-1], len(self.trials), len(self._several))
        return True

    def _in_child(
        self, session: pytest.Session, mutant: Mutant | None, limit_s: int
    ) -> tuple[int, float]:
        """Return how the child ended, and the processor time that it took."""
        sys.stdout.flush()
        sys.stderr.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
            status = _BROKEN
            try:
                status = _run(session, mutant)
            finally:
                os._exit(status)
        ends_s = time.monotonic() + _WALL_MAX_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > ends_s:
                os.kill(child, 9)
            time.sleep(0.01)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return os.waitstatus_to_exitcode(ended[1]), cpu_s


def _run(session: pytest.Session, mutant: Mutant | None) -> int:
    """Run all tests until one fails; the exit status says what came of it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    if mutant is not None and not exchange(mutant):
        return _BROKEN
    failed = False

    class Noting:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            nonlocal failed
            failed = failed or report.failed

    session.config.pluginmanager.register(Noting())
    for at, item in enumerate(session.items):
        following = session.items[at + 1] if at + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            return _KILLED
    return _SURVIVED


def try_all(module: str, tests: list[str], part: slice) -> Forking:
    """Try the mutants of a module that ``part`` takes, by the tests that hold it."""
    source = (ROOT / module).read_text(encoding="utf-8")
    forking = Forking(mutants(module, source)[part])
    options = ["-o", "addopts=--import-mode=importlib -p no:schemathesis", "-o", "timeout=0"]
    options += [each for name in _PLUGINS_LEFT_OUT for each in ("-p", f"no:{name}")]
    pytest.main([*options, "--hypothesis-seed=0", *tests], plugins=[forking])
    return forking


def _show(trial: Trial, number: int, count: int) -> None:
    if trial.verdict not in ("killed", "killed by time"):
        line = f"{number}/{count} {trial.verdict} {trial.mutant.module}:{trial.mutant.line}"
        print(f"{line} {trial.mutant.key}", flush=True)


def survivors(trials: list[Trial]) -> Iterator[Trial]:
    return (each for each in trials if each.verdict == "survived")
