"""A small tool of its own: are recorded histories of clients what a correct service could answer?

Reading order: ``operations`` (what is recorded), ``specification`` (what a model is), ``search``
and ``checker`` (the verdict), ``register`` and ``models`` (what a correct service is),
``explanation`` (why not), ``properties`` and ``queues`` (checks of event logs that need no
search). ``python -m tests.history FILE.jsonl`` judges a file.

It imports nothing of the product, so a mistake there is not repeated here. Give every write of a
test a value of its own: the search is then fast with any number of unknown outcomes.
"""

from tests.history.checker import KeyResult, Result, check
from tests.history.explanation import Explanation, explain
from tests.history.models import MODELS, Counter, GrowingSet, Lock, NumberSequence
from tests.history.operations import Operation, Recorder, read_history, write_history
from tests.history.register import Register
from tests.history.search import Budget, Verdict

__all__ = [
    "check", "Result", "KeyResult", "Verdict", "Budget",
    "explain", "Explanation",
    "Operation", "Recorder", "read_history", "write_history",
    "Register", "Lock", "Counter", "NumberSequence", "GrowingSet", "MODELS",
]  # fmt: skip
