"""One client in full rage against another, on real members with TLS and rights: a short form.

``python -m bench.fairness`` is the long one, and measures the rate as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fairness.__main__ import measure
from bench.fairness.rages import RAGES

pytestmark = pytest.mark.check

KEPT = 0.1
"""Of the other client's rate, on a machine that other tests keep busy."""


@pytest.mark.timeout(300)
def test_no_rage_of_one_client_breaks_a_promise_to_another(tmp_path: Path) -> None:
    """It keeps its session, and no outcome is unknown; leaders stay, and so does memory."""
    rows = measure(tmp_path, list(RAGES), 2.0, KEPT)

    assert [each.rage for each in rows] == list(RAGES)
    assert {each.rage: each.broken(KEPT) for each in rows if each.broken(KEPT)} == {}
