"""What the pages state as facts about the product is so."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import urllib.request

import pytest

import coordinator.errors as errors
import coordinator.guards
from coordinator import recipes
from coordinator.client import AsyncClient, RetryPolicy, connect, locks
from coordinator.testing import LocalCluster
from tests.docs.pages import ROOT


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def below(name: str, title: str) -> str:
    """Return what stands below a heading of second level, up to the next one."""
    return page(name).split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def items(text: str) -> str:
    """Return a page with each item of its lists on one line."""
    return re.sub(r"\n {2,}", " ", text)


def test_every_guard_is_in_the_list_of_stores() -> None:
    """Whoever has a store finds its guard, and what to do where there is none."""
    listed = below("guards.md", "Which store")
    options = re.findall(r"^\d\. \*\*", below("guards.md", "A store that cannot check"), re.M)

    for name in coordinator.guards._HOMES:
        if name != "Guard":  # the protocol that they all follow
            assert f"`{name}`" in listed, f"{name} is not in the list"
    assert len(options) >= 5
    for store in ("Cassandra", "DynamoDB", "MongoDB"):
        assert f"- **{store}**:" in listed, f"no condition for {store}"


def test_every_error_of_a_lock_has_a_reaction() -> None:
    """Not had, away, lost, unknown at the release: each has its row."""
    text = below("recipes.md", "What the errors ask of you")
    rows = re.findall(r"^- \*\*(\w+), (.+?):\*\* .+\. .+\.$", items(text), re.MULTILINE)
    told = {(when, name) for when, names in rows for name in re.findall(r"(\w+Error)`", names)}

    assert told >= {
        ("Acquire", "LockTimeoutError"),
        ("Acquire", "UnavailableError"),
        ("Acquire", "OutcomeUnknownError"),
        ("Acquire", "SessionExpiredError"),
        ("Acquire", "DeadlockError"),
        ("Hold", "LockLostError"),
        ("Release", "OutcomeUnknownError"),
        ("Release", "UnavailableError"),
    }
    for _, name in told:
        assert issubclass(getattr(errors, name), errors.CoordinatorError)


def test_the_defaults_of_retries_and_margin_are_the_documented_ones() -> None:
    """docs/recipes.md says them, and jitter is not zero."""
    listed = below("client.md", "The client")
    told = dict(re.findall(r"^- `retry=RetryPolicy\((\w+)=...\)` \(`([^`]+)`\)", listed, re.M))
    (margin,) = re.findall(r"^- `lease_margin_ratio` \(`([^`]+)`\)", listed, re.MULTILINE)

    assert told == {field.name: str(field.default) for field in dataclasses.fields(RetryPolicy)}
    assert float(told["jitter"]) > 0
    assert float(margin) == inspect.signature(connect).parameters["lease_margin_ratio"].default


def test_each_name_for_who_writes_a_recipe_is_explained() -> None:
    """In docs/recipes.md, and in the docstring of the package."""
    text = below("client.md", "Write your own")
    told = re.findall(r"^- `(\w+)`: ", text, re.MULTILINE)

    assert told == locks.__all__
    assert re.findall(r"^``(\w+)``$", locks.__doc__ or "", re.MULTILINE) == locks.__all__
    for name in locks.__all__:
        assert getattr(locks, name).__doc__


def test_the_tries_of_an_update_are_the_documented_ones() -> None:
    """How often it begins again, and what it raises then."""
    text = " ".join(below("client.md", "The tree").split())
    (tries,) = re.findall(r"`max_retries=(\d+)`", text)

    assert int(tries) == inspect.signature(AsyncClient.update).parameters["max_retries"].default
    assert "`TooManyRetriesError`, and nothing of it was written" in text


def test_what_a_shared_rate_can_be_exceeded_by_is_said() -> None:
    """By what N clients hold in chunks of their own."""
    text = " ".join(below("sharing.md", "A shared rate").split())

    assert re.search(r"N clients that take chunks of `n`.*exceeded by at most N x n", text)


def test_both_sides_on_which_a_crash_can_fail_are_said() -> None:
    """At most once loses it, at least once repeats it; the guide asks to choose."""
    text = " ".join(below("locks.md", "Which lock or recipe").split())
    story = importlib.import_module("examples.at_most_at_least_once").__doc__ or ""

    assert re.search(r"choose the side.*at most once.*at least once.*at_most", text)
    assert "on which side a crash fails" in " ".join(story.split())


def test_looking_is_said_to_be_looking_at_the_past() -> None:
    """Nobody is led to believe that ``verify`` or ``is_held`` protects a write."""
    holder = " ".join(below("recipes.md", "What a holder must do").split())
    help_text = " ".join((recipes.Grant.verify.__doc__ or "").split())

    assert re.search(r"`grant\.verify\(\)`.*may be out of date when you read it", holder)
    assert "past when you read it" in help_text


def test_the_limits_of_any_lock_are_stated() -> None:
    """Promised: the order of grants, and tokens. Not: that code does not overlap."""
    promised = " ".join(below("guarantees.md", "Promised").split())
    not_promised = " ".join(below("guarantees.md", "Not promised").split())

    assert re.search(r"granted in the order in which they queued.*token.*larger than", promised)
    assert re.search(
        r"code in two clients never overlaps.*\*\*fencing token closes it", not_promised
    )


def test_each_promise_names_tests_that_are_there() -> None:
    """A promise without a test is a wish."""
    promises = re.split(r"^\d+\. ", below("guarantees.md", "Promised"), flags=re.MULTILINE)[1:]

    assert len(promises) >= 18
    for promise in promises:
        tests = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", promise)
        assert tests, promise
        for test in tests:
            assert (ROOT / test).exists(), test


def test_each_promise_is_examined_by_something_that_is_there() -> None:
    """The list names every promise, every property that worlds judge, and tests."""
    promises = re.findall(r"^(\d+)\. ", below("guarantees.md", "Promised"), flags=re.MULTILINE)
    rows = re.findall(
        r"^- \*\*(\d+) [^*]+\*\*: (.+?)\. Besides: (.+)\.$",
        items(below("testing.md", "Which promise is examined by what")),
        flags=re.MULTILINE,
    )
    judgements = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests/simulation").glob("*.py")
        if not path.name.startswith("test_")
    )

    assert [number for number, _, _ in rows] == promises
    for _, properties, besides in rows:
        for name in properties.split(", "):
            assert f'"{name}"' in judgements, name
        for test in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", besides):
            assert (ROOT / test).exists(), test
    judged = set(re.findall(r"""(?:yield|violate\()\s*\(?"([a-z][\w' -]+)\"""", judgements))
    named = {name for _, properties, _ in rows for name in properties.split(", ")}
    assert judged - named == {"one liar takes no vote"}


def test_metrics_that_are_named_are_answered(shared_coordinator_cluster: LocalCluster) -> None:
    """What sizing, queues and disks are read from is in /metrics."""
    named = set(re.findall(r"\bcoordinator_[a-z_]+", page("operations.md") + page("monitoring.md")))
    cluster, answered = shared_coordinator_cluster, ""

    with cluster.connect() as client, recipes.Lock(client, "measured"):
        pass
    for member in cluster.members:  # some are counted by who was asked, some by the leader
        with urllib.request.urlopen(f"{cluster.url(member)}/metrics", timeout=10) as response:
            answered += response.read().decode()

    assert {"coordinator_proposals_total", "coordinator_engine_sync_seconds_total"} <= named
    for name in sorted(named):
        assert re.search(rf"^{name}(_bucket)?[{{ ]", answered, re.MULTILINE), name


@pytest.mark.parametrize("word", ["Throttled", "429", "definite"])
def test_overload_is_said_to_be_a_refusal(word: str) -> None:
    """Busy, not a timeout; test_proposals shows that it is so."""
    assert word in below("monitoring.md", "How much does it carry?")
