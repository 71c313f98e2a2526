"""Each pass mark can be kept, missed, and left unjudged on a machine that is too busy for it."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.faults import canary
from tests.cluster.faults.world import Plan, Tally
from tests.cluster.marks import (
    Judged,
    Mark,
    Tick,
    as_in_calm,
    at_most,
    not_slower,
    quantile,
    slowdown,
    within,
)
from tests.cluster.scripts import Script

ALONE = [Tick(float(number), 0.002, 0.002) for number in range(100)]
CROWDED = [Tick(float(number), 0.002, 0.006) for number in range(100)]
"""A canary that gets a third of what it asks for."""
STALLED = [*ALONE, Tick(100.0, 0.002, 1.502)]
"""A machine that stood still once, for a second and a half."""
STEADY = [0.010] * 490 + [0.050] * 10
"""The answers of a calm phase: 10 ms, and 50 ms for two of a hundred."""
JUMPY = [0.010] * 480 + [0.400] * 20


def test_a_machine_alone_is_as_fast_as_itself() -> None:
    """The slowdown is what all looks took to what they needed; none says nothing."""
    assert slowdown(ALONE) == 1.0
    assert round(slowdown(CROWDED), 9) == 3.0
    assert round(slowdown(STALLED), 2) == 8.43
    assert slowdown([]) == 1.0


def test_a_quantile_is_one_of_the_figures() -> None:
    """The smallest that the share is not above: of ten, the 99th percentile is the worst."""
    figures = [0.5, 0.1, 0.4, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert (quantile(figures, 0.5), quantile(figures, 0.99), quantile(figures, 1.0)) == (
        0.5, 1.0, 1.0,
    )  # fmt: skip
    assert quantile([0.3], 0.5) == 0.3


def test_within_its_bound_a_mark_is_kept_on_any_machine() -> None:
    """A busy machine is no reason to doubt a good figure."""
    for calm in (ALONE, CROWDED, STALLED):
        assert within("writes again", [1.0, 2.9], 3.0, calm).judged is Judged.KEPT


def test_beyond_its_bound_a_mark_is_missed_where_the_machine_is_alone() -> None:
    """The figures are named with the verdict."""
    mark = within("writes again", [1.0, 3.5], 3.0, ALONE)

    assert mark.judged is Judged.MISSED
    assert str(mark) == (
        "missed: writes again, worst ≤ 3 s: 3.50 s of 2; calm, the machine is 1.0 times slower "
        "than alone, worst 0.00 s"
    )
    assert within("writes again", [1.0, 3.5], 3.0, [], share=0.99).judged is Judged.MISSED
    assert within("writes again", [1.0, 3.5], 3.0, ALONE, share=0.5).judged is Judged.KEPT


def test_what_a_busy_machine_explains_is_not_judged() -> None:
    """Three times slower in calm explains 3.5 s for 3 s; it does not explain 30 s."""
    mark = within("writes again", [3.5], 3.0, CROWDED)

    assert mark.judged is Judged.NOT
    assert "the machine was too busy: 3.50 s" in mark.figures
    assert "3.0 times slower" in mark.figures
    assert within("writes again", [30.0], 3.0, CROWDED).judged is Judged.MISSED
    assert within("writes again", [4.4], 3.0, STALLED).judged is Judged.NOT


def test_a_mark_without_a_figure_is_not_judged() -> None:
    """Nothing measured is not the same as nothing wrong."""
    assert within("healed", [], 10.0, ALONE).judged is Judged.NOT


def test_a_latency_is_compared_with_that_of_calm() -> None:
    """Kept up to the bound, missed beyond it where calm is like calm."""
    calm = [STEADY] * 4
    assert not_slower("answers", [0.140] * 500, calm, 3.0).judged is Judged.KEPT
    assert not_slower("answers", [0.010] * 480 + [0.160] * 20, calm, 3.0).judged is Judged.MISSED


def test_a_latency_is_not_judged_where_calm_is_not_like_calm() -> None:
    """Two halves of calm that differ as much as the fault from calm prove nothing."""
    faulty = [0.010] * 480 + [1.3] * 20
    mark = not_slower("answers", faulty, [STEADY, JUMPY, STEADY, JUMPY], 3.0)

    assert mark.judged is Judged.NOT
    assert "the machine was too busy" in mark.figures
    assert "8.0 times the other" in mark.figures


def test_a_latency_of_few_answers_is_not_judged() -> None:
    """A hundred answers have no 99th percentile."""
    assert not_slower("answers", [0.9] * 100, [STEADY] * 4, 3.0).judged is Judged.NOT
    assert not_slower("answers", [0.9] * 500, [STEADY], 3.0).judged is Judged.NOT


def test_short_times_are_judged_by_the_same_in_calm() -> None:
    """Where calm takes more than half of the bound already, a machine is at its end."""
    mark = as_in_calm("asked", [0.01, 0.13], 0.1, [0.02, 0.03])
    assert str(mark) == ("missed: asked, worst ≤ 0.1 s: 0.13 s of 2, 1 beyond; in calm 0.03 s of 2")
    assert as_in_calm("asked", [0.01, 0.09], 0.1, [0.2]).judged is Judged.KEPT
    assert as_in_calm("asked", [0.01, 0.13], 0.1, [0.02, 0.07]).judged is Judged.NOT
    assert as_in_calm("asked", [], 0.1, [0.02]).judged is Judged.NOT
    assert as_in_calm("asked", [0.13], 0.1, []).judged is Judged.NOT


def test_a_count_is_judged_unless_the_machine_stood_still() -> None:
    """Whoever does not run for half an election timeout may lose an election."""
    assert at_most("elections", 1, 1, STALLED).judged is Judged.KEPT
    assert at_most("elections", 2, 1, ALONE).judged is Judged.MISSED
    assert at_most("elections", 2, 1, STALLED).judged is Judged.NOT
    assert at_most("elections", 2, 1, CROWDED).judged is Judged.MISSED
    slower = [Tick(float(number), 0.002, 0.010) for number in range(100)]
    assert at_most("elections", 2, 1, slower).judged is Judged.NOT


def test_a_row_tells_its_marks_and_fails_by_those_it_missed() -> None:
    """A mark that is not judged is said, and is no failure."""
    tally = Tally()
    tally.marks += [Mark("a", Judged.KEPT, "1"), Mark("b", Judged.NOT, "busy")]
    assert tally.missed == []
    tally.marks.append(Mark("c", Judged.MISSED, "9"))
    assert tally.missed == ["missed: c: 9"]
    assert tally.summary() == ["mark kept: a: 1", "mark not judged: b: busy", "mark missed: c: 9"]


def test_the_faults_of_a_row_are_shared_by_the_sizes() -> None:
    """Their numbers go on, so that kinds that take turns all do; none is left over."""

    def shared(scale: float, *members: int) -> list[tuple[int, list[int]]]:
        plan = Plan(1, scale, members)
        return [(size, list(numbers)) for size, numbers in plan.shares(3)]

    assert shared(1.0, 3, 5) == [(3, [0, 1]), (5, [2])]
    assert shared(1.0, 5) == [(5, [0, 1, 2])]
    assert shared(0.1, 3, 5) == [(3, [0])]


def test_the_canary_sees_how_long_its_work_took(tmp_path: Path) -> None:
    """It goes on until it is ended, and needs about 2 ms of processor time for each look."""
    path = tmp_path / "ticks"
    script = Script(str(Path(canary.__file__)), str(path), str(tmp_path / "synced"))
    try:
        while len(list(canary.read(path))) < 30:
            assert script.process.poll() is None, "it runs"
    finally:
        script.end()

    looks = list(canary.read(path))
    assert all(0.002 <= work_s <= took_s + 0.001 for _, work_s, took_s, _ in looks)
    assert [sync_s >= 0 for _, _, _, sync_s in looks[:26]] == [*[False] * 24, True, False]
