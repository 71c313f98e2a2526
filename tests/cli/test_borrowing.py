"""``coordinator borrow``: a command with one of several things."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from coordinator.cli.output import EXIT_NOT_IN_TIME, EXIT_USAGE
from coordinator.client import connect
from coordinator.recipes import Pool
from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember
from tests.patience import patient

GPUS = ["gpu-0", "gpu-1"]
SHOW = ("--", "sh", "-c", 'echo "$COORDINATOR_RESOURCE $COORDINATOR_FENCING_TOKEN"')


def begin(member: ServedMember, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "coordinator", "borrow", "gpus", *arguments]
    return subprocess.Popen(
        [*words[:4], "--endpoints", member.url, *words[4:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.check
@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")
def test_each_command_has_a_resource_of_its_own(member: ServedMember) -> None:
    """With a token; none is free meanwhile; one whose process was killed is free again."""
    of = ("--of", ",".join(GPUS))
    with connect(member.url) as client:
        pool = Pool(client, "gpus", GPUS)
        holding = begin(member, *of, "--ttl", "1", "--", "sleep", "60")
        ends = time.monotonic() + patient(20)
        while not pool.borrowed() and time.monotonic() < ends:
            time.sleep(0.05)
        (taken,) = pool.borrowed().items()
        second = begin(member, *of, *SHOW)
        out, _ = second.communicate(timeout=patient(30))
        resource, token = out.split()
        assert (second.returncode, resource) == (0, next(each for each in GPUS if each != taken[0]))
        assert int(token) > taken[1]
        with pool.borrow():
            none = begin(member, *of, "--timeout", "0", *SHOW)
            assert none.communicate(timeout=patient(30))[0] == ""
            assert none.returncode == EXIT_NOT_IN_TIME
        holding.kill()
        holding.communicate()
        with pool.borrow(timeout=patient(20)), pool.borrow(timeout=patient(20)):
            assert set(pool.borrowed()) == set(GPUS)
        failing = begin(member, *of, "--", "sh", "-c", "exit 3")
        failing.communicate(timeout=patient(30))
        assert failing.returncode == 3
        assert pool.borrowed() == {}


def test_a_pool_of_nothing_is_wrong_usage(coordinator: CommandLine) -> None:
    """And one that names a thing twice."""
    assert coordinator("borrow", "gpus", "--of", "a,a", "--", "true").exit_code == EXIT_USAGE
    assert coordinator("borrow", "gpus", "--", "true").exit_code == EXIT_USAGE
