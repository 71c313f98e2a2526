"""The collector looks at what came last, however much there is; cycles that die soon still go."""

from __future__ import annotations

import json
import subprocess
import sys

_SCENE = """
import gc, json
from typing import NamedTuple
from coordinator.node.garbage import KEPT_MAX, SmallSteps

class Item(NamedTuple):
    number: int
    text: str

class Knot:
    def __init__(self):
        self.me = self

looked_at, found = [], 0

def before(phase, facts):
    global found
    if phase == "start" and facts["generation"] == 2:
        looked_at.append(len(gc.get_objects()))
    if phase == "stop":
        found += facts["collected"]

gc.callbacks.append(before)
"""


def _run(body: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _SCENE + body], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_state_that_grows_is_not_looked_at_again() -> None:
    """600,000 things that stay, by processes of their own: the most looked at, counted."""
    body = "state = {n: Item(n, str(n)) for n in range(600_000)}\nprint(max(looked_at))"

    most_before = int(_run(body))
    most = int(_run("SmallSteps().begin()\n" + body))

    assert most_before > 200_000
    assert most < 60_000


def test_cycles_that_die_in_time_are_collected() -> None:
    """While a state grows beside them: all but the last few, which are still to come."""
    body = """
gc.disable()  # as a member starts
SmallSteps().begin()
state = {}
for n in range(200_000):
    state[n] = Item(n, str(n))
    Knot()
print(found)
"""
    assert int(_run(body)) > 190_000


def test_many_cycles_found_are_logged_and_lead_to_no_long_look() -> None:
    """Those put aside alive stay, since a look at everything would hold the member for long."""
    body = """
import logging
said = []
logging.getLogger("coordinator.server").warning = lambda text, *facts: said.append(text % facts)
state = {n: Item(n, str(n)) for n in range(300_000)}
SmallSteps(found_max=5_000).begin()
looked_at.clear()
for _ in range(20):
    for _ in range(600):
        Knot()
    gc.collect()
print(json.dumps([len(said), max(looked_at) < 60_000, said[0].split(",")[0].split(" ", 1)[1]]))
"""
    assert json.loads(_run(body)) == [2, True, "objects were garbage in cycles"]
