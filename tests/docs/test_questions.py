"""What people ask is asked in docs/locks.md and docs/evaluate.md, and the answer says what it must.

An answer is read for its facts, each a pattern; how it puts them is the page's.
"""

from __future__ import annotations

import re

import pytest

from coordinator.cli.advise import QUESTIONS
from coordinator.client.sessions.lease import Lease, margin_ms
from tests.docs.pages import ROOT
from tests.examples.test_stories import SAID

PAGE = (ROOT / "docs" / "locks.md").read_text(encoding="utf-8")
COMPARISON = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")


def section(title: str, page: str = PAGE) -> str:
    """Return the text below a heading, up to the next one of its level or above."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", page, re.MULTILINE)
    assert heading, f"no heading {title!r}"
    marks, text = heading[1], page[heading.end() :]
    return re.split(rf"^#{{1,{len(marks)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def answers() -> dict[str, str]:
    """Return the questions of the page, each with its answer on one line."""
    parts = re.split(r"^\*\*(.+?\?)\*\*", section("Questions"), flags=re.MULTILINE)
    return {
        question: " ".join(answer.split())
        for question, answer in zip(parts[1::2], parts[2::2], strict=True)
    }


ASKED = {
    "Redlock safe": r"efficiency, yes.*correctness, no.*clock.*Here.*Lock.*guard",
    "fencing token": r"integer.*larger.*refuses.*UUID has no order",
    "election different": r"until its holder resigns.*value.*observers.*epoch",
    "database that I have": r"Often.*pins a connection.*pooler.*same place that also serves",
    "garbage collector": r"^No\..*only the store",
    "limits of `SELECT": r"one by one.*load.*long transaction.*deadlocks.*other database",
}


@pytest.mark.parametrize(("words", "says"), ASKED.items(), ids=list(ASKED))
def test_a_question_is_asked_and_answered(words: str, says: str) -> None:
    """A reader finds the question by its words, and the facts below it."""
    (answer,) = [answer for question, answer in answers().items() if words in question]

    assert re.search(says, answer), answer


def test_the_mistakes_of_others_are_not_repeated() -> None:
    """Sessions, not connections; Kubernetes; etcd's reads; Redlock."""
    by_question = answers()
    (pause,) = [answer for question, answer in by_question.items() if "garbage" in question]
    (redlock,) = [answer for question, answer in by_question.items() if "Redlock" in question]
    others = " ".join(section("Compared with others", COMPARISON).split())

    assert re.search(r"pause longer than the session's timeout loses it.*ZooKeeper", pause)
    assert "the session, not the connection" in pause
    assert re.search(r"Kubernetes.*updates a `Lease` object.*not a lease of etcd", others)
    assert re.search(r"etcd.*serializable reads and watches are served by any member", others)
    assert re.search(r"counts from before the first request.*margin comes off", redlock)


def test_both_sides_of_the_debate_are_told() -> None:
    """In our own words; the clock and the pause are each settled by a story."""
    debate = " ".join(section("The debate").split())

    assert re.search(r"\*Kleppmann\* asks.*must\s+not rely on time", debate, re.DOTALL)
    assert re.search(r"\*Sanfilippo\* answers.*span of time", debate, re.DOTALL)
    assert "Both are right about the pause" in debate
    for story in ("wall_clock_steps", "ghost_writer", "clock_drift"):
        assert f"{story}.py" in PAGE
        assert story in SAID, "and it is run by a test"


def test_the_comparison_is_honest() -> None:
    """Beside ZooKeeper, etcd and others, with items in which we are the worse."""
    said = re.sub(r"\n {2,}", " ", section("Compared with others", COMPARISON))
    facts = dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", said, re.MULTILINE))

    assert len(facts) >= 12
    assert all("ours" in name + text for name, text in facts.items()), "each says what we do"
    for other in ("ZooKeeper", "etcd", "Consul", "Redis", "Redlock", "a database"):
        assert sum(other in text for text in facts.values()) >= 4, other
    assert facts["Used for years by many"].startswith("all but ours")
    missing = facts["Not yet in ours, and in the others"]
    assert [fact for fact in ("members", "languages") if fact not in missing] == []


def test_each_way_around_a_lock_has_a_program() -> None:
    """Five ways, each with a sample that a test runs."""
    items = re.sub(r"\n {2,}", " ", section("What to do instead"))
    ways = {
        row.partition(":**")[0]: re.findall(r"examples/(\w+)\.py", row)
        for row in items.split("- **")
    }

    for way in ("Compare and set", "Idempotency", "Partition", "An event log", "An actor"):
        assert ways[way], f"no sample for {way}"
        for story in ways[way]:
            assert story in SAID, f"{story} is not run"


def test_the_decision_is_a_page_and_a_command() -> None:
    """``coordinator advise`` asks what the page asks, in its order."""
    questions = re.findall(r"^\d\. \*\*(.+?)\*\*", section("Do you need a lock?"), re.MULTILINE)
    asked = [question.name for question in QUESTIONS]

    assert "`coordinator advise` asks them" in section("Do you need a lock?")
    assert list(zip(questions, asked, strict=True)) == [
        ("Is everybody in one process, or on one machine?", "single_node"),
        ("Can the store do it in one step?", "native_cas"),
        ("Is it good enough if it happens twice, or a little late?", "eventual_consistency"),
        ("Would everybody stand in one queue for it?", "bottleneck"),
    ]


def test_a_single_row_is_left_to_its_database() -> None:
    """The guide says so before it offers a lock; test_row_lock runs its sample."""
    needed = section("Do you need a lock?")

    assert re.search(r"rows of one database use \[its row lock\]", needed)
    assert "FOR UPDATE" in section("Rows of one database")
    assert "no coordinator" in section("Rows of one database")


def test_idempotency_is_recommended_with_a_lock() -> None:
    """As the second net under it, with a story."""
    advice = " ".join(section("What to do instead").split())

    assert re.search(r"Idempotency goes well \*with\* a lock.*recommend.*second_net", advice)


def test_the_formula_for_the_timeout_is_that_of_the_client() -> None:
    """What the worst case leaves of a lease is its factor; test_trouble tries it."""
    page = section("Choosing the timeout")
    assert "`coordinator diagnose` compares the leases with the pauses" in page
    (factor,) = re.findall(r"T  ≥  \(P \+ N \+ E\) / (0\.\d+)", page)
    timeout_ms = 10_000
    lease = Lease(sent_ms=0, timeout_ms=timeout_ms, margin_ms=margin_ms(timeout_ms))
    wasted_ms = lease.interval_ms + lease.attempt_ms + lease.pause_ms_max
    left = (lease.safe_until_ms - wasted_ms) / timeout_ms

    assert float(factor) == pytest.approx(left, abs=0.005)
    examples = re.findall(r"\| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \|", page)
    assert len(examples) == 3
    for *trouble, at_least in examples:
        assert float(at_least) == pytest.approx(sum(map(float, trouble)) / float(factor), rel=0.02)
