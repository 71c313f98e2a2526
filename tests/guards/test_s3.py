"""What S3Guard has beyond the conformance kit: races at the put, and answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.errors import (
    BadArgumentsError,
    OutcomeUnknownError,
    StaleTokenError,
    StaleWriteError,
    TooManyRetriesError,
)
from coordinator.guards import S3Guard
from coordinator.guards.s3 import _TRIES_MAX
from tests.guards.object_store import Store, refusal
from tests.guards.values import s3_client

BUCKET = "races"


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def guard(store: Store) -> S3Guard:
    return S3Guard(store, bucket="b", key="k")


def test_somebody_else_between_look_and_put_is_looked_at_again(
    store: Store, guard: S3Guard
) -> None:
    """The put is refused by the store; the second look sees the higher token."""
    guard.write(33, b"by 33")
    store.before_put = lambda: S3Guard(store, bucket="b", key="k").write(34, b"by 34")

    with pytest.raises(StaleTokenError, match="token 33 is stale, 34 has been seen"):
        guard.write(33, b"late")

    assert guard.read() == b"by 34"


@pytest.mark.parametrize("meanwhile", ["raise", "same bytes"])
def test_the_same_content_under_a_higher_token_is_another_content(
    store: Store, guard: S3Guard, meanwhile: str
) -> None:
    """With the token in the metadata the ETag would not have changed, and the late put passed."""
    guard.write(33, b"same")
    other = S3Guard(store, bucket="b", key="k")
    store.before_put = (
        (lambda: other.raise_to(34)) if meanwhile == "raise" else lambda: other.write(34, b"same")
    )

    with pytest.raises(StaleTokenError):
        guard.write(33, b"late")

    assert guard.read() == b"same"


def test_a_first_write_does_not_overwrite_another_first_write(store: Store, guard: S3Guard) -> None:
    """``If-None-Match: *``, then a second look."""
    store.before_put = lambda: S3Guard(store, bucket="b", key="k").write(34, b"by 34")

    with pytest.raises(StaleTokenError):
        guard.write(33, b"late")

    assert guard.read() == b"by 34"


def sent_again(store: Store, then: Callable[[], None] = lambda: None) -> None:
    """Let the answer to the next put be lost, ``then`` something happen, and the put sent again."""
    put = store.put_object

    def twice(*, Body: bytes, IfMatch: str = "", IfNoneMatch: str = "", **place: Any) -> Any:
        del store.__dict__["put_object"]
        put(Body=Body, IfMatch=IfMatch, IfNoneMatch=IfNoneMatch, **place)
        then()
        store.put_again(place["Key"], Body, IfMatch, IfNoneMatch)

    store.__dict__["put_object"] = twice


def test_a_put_whose_answer_was_lost_is_recognised(store: Store, guard: S3Guard) -> None:
    """The client sends it again, the store refuses that, and the id of the write tells why."""
    guard.write(33, b"first")
    sent_again(store)

    guard.write(33, b"second")

    assert guard.read() == b"second"


def test_a_numbered_put_whose_answer_was_lost_is_no_late_one(store: Store, guard: S3Guard) -> None:
    """The store holds its own number already; it is the same write, not a second one."""
    guard.write(33, b"first", write_number=1)
    sent_again(store)

    guard.write(33, b"second", write_number=2)

    assert guard.read() == b"second"
    guard.raise_to(33)
    with pytest.raises(StaleWriteError, match=r"write 2 under token 33 .* 2 has been seen"):
        guard.write(33, b"second", write_number=2)
    other = S3Guard(store, bucket="b", key="k")
    other.write(33, b"without a number")
    with pytest.raises(StaleWriteError):
        other.write(33, b"second", write_number=2)
    other.write(34, b"by 34", write_number=1)


def test_a_lost_answer_and_another_writer_leave_it_unknown(store: Store, guard: S3Guard) -> None:
    """Ours happened and is overwritten: neither failed nor done can be said."""
    guard.write(33, b"first")
    other = S3Guard(store, bucket="b", key="k")
    sent_again(store, lambda: other.write(34, b"by 34"))

    with pytest.raises(OutcomeUnknownError, match="not known"):
        guard.write(33, b"second")

    assert guard.read() == b"by 34"


def test_others_at_every_try_end_in_an_error_that_says_so(store: Store, guard: S3Guard) -> None:
    """Bounded, and definite: nothing of ours was written."""
    guard.write(33, b"first")

    def refuse(**_: Any) -> None:
        raise refusal("ConditionalRequestConflict", 409, "PutObject")

    store.__dict__["put_object"] = refuse

    with pytest.raises(TooManyRetriesError) as refused:
        guard.write(33, b"second")

    assert refused.value.message == (
        "s3://b/k: expected to write once without another writer in between, found one in each of "
        "20 tries; nothing was written. Try again, or let only the holder of the lock write this "
        "object"
    )


@pytest.mark.parametrize("is_over_written", [False, True])
def test_the_last_try_is_doubted_as_the_others_are(
    store: Store, guard: S3Guard, is_over_written: bool
) -> None:
    """Its answer was lost: it is looked for once more before nothing is said to be done."""
    guard.write(33, b"first")
    other = S3Guard(store, bucket="b", key="k")
    tries = 0

    def refuse(**given: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == _TRIES_MAX:
            del store.__dict__["put_object"]
            sent_again(store, lambda: other.write(34, b"by 34") if is_over_written else None)
            store.put_object(**given)
        else:
            raise refusal("ConditionalRequestConflict", 409, "PutObject")

    store.__dict__["put_object"] = refuse
    if is_over_written:
        with pytest.raises(OutcomeUnknownError, match="not known"):
            guard.write(33, b"second")
    else:
        guard.write(33, b"second")

    assert guard.read() == (b"by 34" if is_over_written else b"second")


def test_an_object_that_no_guard_wrote_is_not_taken_for_one(store: Store, guard: S3Guard) -> None:
    """Something else writes there: say so, and leave it alone."""
    for body in (b"", b"plain", b"{}\n", b'{"fencing_token": true, "write_id": "x"}\nabc'):
        store.objects["k"] = body

        with pytest.raises(BadArgumentsError, match="something else writes here"):
            guard.write(33, b"mine")

        assert store.objects["k"] == body


def test_a_raise_leaves_the_data_and_is_done_once(store: Store, guard: S3Guard) -> None:
    """Also over an object that does not exist yet, which is then empty."""
    guard.raise_to(33)
    assert guard.read() == b""

    guard.write(33, b"line one\nline two")
    guard.raise_to(34)
    body = store.objects["k"]
    guard.raise_to(34)

    assert guard.read() == b"line one\nline two"
    assert store.objects["k"] is body
    assert guard.highest_token() == 34


def test_a_store_that_ignores_conditions_is_found_out(store: Store, guard: S3Guard) -> None:
    """Such a store takes every put: the guard would be none."""
    guard.check_store()
    store.ignores_conditions = True

    with pytest.raises(BadArgumentsError, match="ignores If-None-Match"):
        guard.check_store()

    assert store.objects == {}


def test_the_store_honours_the_conditions(object_store: str) -> None:
    """What the trials of the conformance kit stand on."""
    client = s3_client(object_store)
    client.create_bucket(Bucket=BUCKET)

    S3Guard(client, bucket=BUCKET, key="probe").check_store()

    assert client.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0
