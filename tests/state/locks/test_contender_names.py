"""What names tell: the members and the recipe over plain znodes read every name alike."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.model import queue_order as contention
from coordinator.state.commands import Kind
from coordinator.state.locks.contender import DELAY_PREFIX, is_queue, kind_of, number_of, recorded
from tests.amount import histories

words = st.sampled_from(["", "lock-", "read-", "slot-", "delay-", "read", "Read-", "x", "-"])
digits = st.one_of(
    st.text("0123456789", max_size=21),
    st.text("0123456789\u0663\u00b2\uff11a-", min_size=8, max_size=20),
    st.integers(9, 20).map(lambda length: "7" * length),
)
"""Also those of other scripts, and what ``str.isdigit`` takes for one and ``int`` does not."""
names = st.builds(lambda *parts: "".join(parts), words, words, digits)


@histories(2_000)
@given(names)
@example("lock-" + "\u0663" * 10)
@example("lock-" + "\u00b2" * 10)
@example("\u0663" + "7" * 10)
@example("7" * 18)
@example("7" * 19)
def test_a_name_tells_members_and_recipes_the_same(name: str) -> None:
    """The number at its end, ten digits to eighteen, and the kind by its prefix."""
    number = number_of(name)

    assert number == contention.sequence_of(name)
    assert number == number_of(f"/locks/a/{name}")
    kind = contention.kind_of(name)
    if name.startswith(DELAY_PREFIX):
        assert kind == "closed"
    else:
        assert kind_of(name) is Kind(kind)


@given(st.lists(st.sampled_from(["locks", "elections", "lockss", "a", ""]), max_size=4))
def test_a_queue_is_a_directory_of_two_names(parts: list[str]) -> None:
    """The first is one of two roots; the second may be any."""
    path = "/" + "/".join(parts)

    assert is_queue(path) == (len(parts) == 2 and parts[0] in ("locks", "elections"))


@given(st.integers(2_040, 2_056))
def test_long_data_is_not_kept_with_a_grant(length: int) -> None:
    """All of it, or nothing."""
    data = b"x" * length

    assert recorded(data) == (data if length <= 2_048 else b"")
