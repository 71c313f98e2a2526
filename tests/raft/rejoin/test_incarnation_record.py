"""The record of incarnations: whom it knows, which life is the later, damage."""

from __future__ import annotations

import random

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.errors import StorageError
from coordinator.raft.rejoin import incarnation_record as incarnations
from coordinator.raft.rejoin.incarnation_record import (
    INCARNATIONS_KEPT,
    NO_PROOF_IS_LATER,
    IncarnationRecord,
    Met,
    is_older_copy,
    knows,
    load,
    save,
)
from coordinator.raft.rejoin.recovering import Proof
from tests.raft.storage.simulated_disk import SimulatedDisk


def a_record(count: int, seed: int = 0) -> IncarnationRecord:
    draw = random.Random(seed)
    record = IncarnationRecord()
    for _ in range(count):
        record.begin(draw.randbytes(8))
    return record


@pytest.mark.parametrize(
    ("behind", "expected"), [(0, True), (1, True), (INCARNATIONS_KEPT - 1, True), (5_000, True)]
)
def test_a_member_knows_its_own_incarnations(behind: int, expected: bool) -> None:
    """The last ones by their ids, those long ago by their number alone."""
    draw = random.Random(0)
    ids = [draw.randbytes(8) for _ in range(10_000)]
    record = a_record(10_000)
    number = record.number - behind
    met = Met(number=number, incarnation_id=ids[number - 1], proof=Proof(1, 1))

    assert knows(record.number, record.ids, met) is expected


@pytest.mark.parametrize("count", [INCARNATIONS_KEPT - 1, INCARNATIONS_KEPT, INCARNATIONS_KEPT + 1])
def test_ids_decide_as_far_as_they_are_kept_and_numbers_beyond(count: int) -> None:
    """The very last id that is kept still tells apart two incarnations of that number."""
    draw = random.Random(1)
    ids = [draw.randbytes(8) for _ in range(count)]
    record = a_record(count, seed=1)
    record.life_id = ids[0]
    kept = min(count, INCARNATIONS_KEPT)
    oldest = count - kept + 1

    assert record.ids == ids[-kept:]
    assert knows(
        count, record.ids, Met(number=oldest, incarnation_id=ids[oldest - 1], proof=Proof(1, 1))
    )
    assert not knows(
        count, record.ids, Met(number=oldest, incarnation_id=b"another!", proof=Proof(1, 1))
    )
    assert knows(
        count, record.ids, Met(number=oldest - 1, incarnation_id=b"another!", proof=Proof(1, 1))
    )
    for life_id, expected in ((ids[0], False), (b"another!", True)):
        met = Met(
            number=oldest - 1, incarnation_id=b"before!!", proof=NO_PROOF_IS_LATER, life_id=life_id
        )
        assert is_older_copy(count, record.ids, ids[0], Proof(2, 2), met) is expected


def test_a_member_does_not_know_what_began_after_the_copy() -> None:
    """Neither a later number, nor the same number with another id, however often it was started."""
    copy = a_record(10)
    newest = IncarnationRecord(copy.number, list(copy.ids))
    newest.begin(b"newer one")
    met = Met(number=newest.number, incarnation_id=b"newer on", proof=Proof(1, 1))

    for _ in range(INCARNATIONS_KEPT):
        assert not knows(copy.number, copy.ids, met)
        copy.begin(b"another ")


@pytest.mark.parametrize(
    ("proof", "met_proof", "expected"),
    [
        ((3, 10), (3, 9), False),
        ((4, 1), (3, 9), False),
        ((1, 0), (0, 0), False),
        ((3, 9), (3, 9), True),
        ((3, 8), (3, 9), True),
        ((2, 99), (3, 9), True),
        ((0, 0), (0, 0), True),
        ((0, 0), (1, 0), True),
        ((99, 99), NO_PROOF_IS_LATER, True),
    ],
)
def test_of_two_lives_the_one_proven_with_more_is_the_later(
    proof: tuple[int, int], met_proof: tuple[int, int], expected: bool
) -> None:
    """Where neither knows the incarnations of the other; who is not later is accused."""
    met = Met(number=7, incarnation_id=b"of then!", proof=Proof(*met_proof))

    assert is_older_copy(2, [b"one now!", b"two now!"], b"life now", Proof(*proof), met) is expected
    is_less = proof < met_proof != NO_PROOF_IS_LATER
    assert is_older_copy(8, [b"of then!", b"two now!"], b"life now", Proof(*proof), met) is is_less


@pytest.mark.parametrize(
    ("life_id", "proof", "met", "expected"),
    [
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=Proof(1, 8), life_id=b"of then!"),
            True,
        ),
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER, life_id=b"of then!"),
            True,
        ),
        (
            b"life now",
            Proof(1, 8),
            Met(number=1, incarnation_id=b"one now!", proof=Proof(1, 8), life_id=b"life now"),
            False,
        ),
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER, life_id=b"life now"),
            False,
        ),
        (
            b"life now",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER),
            True,
        ),
        (
            b"",
            Proof(0, 0),
            Met(number=1, incarnation_id=b"one now!", proof=NO_PROOF_IS_LATER),
            True,
        ),
    ],
)
def test_a_number_far_ahead_decides_within_one_life_only(
    life_id: bytes, proof: Proof, met: Met, expected: bool
) -> None:
    """They begin anew with each: an old disk may be hundreds of incarnations ahead."""
    ids = [b"of then!"] * INCARNATIONS_KEPT

    assert is_older_copy(9_000, ids, life_id, proof, met) is expected


def test_what_is_noted_is_there_again_and_damage_is_refused() -> None:
    """Every byte counts: a member that cannot tell what it has forgotten does not start."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    met = {"2": Met(number=7, incarnation_id=b"8 bytes?", proof=Proof(4, 900), life_id=b"its life")}
    record = IncarnationRecord(number=3, ids=[b"8 bytes!"] * 3, met=met, life_id=b"one life")
    assert load(disk, "data") == IncarnationRecord()
    save(disk, "data", incarnations.packed(record))
    disk.crash()

    assert load(disk, "data") == record
    for offset in range(len(disk.read(f"data/{incarnations.NAME}"))):
        damaged = disk.copy()
        damaged.flip(f"data/{incarnations.NAME}", offset)
        with pytest.raises(StorageError, match="must be replaced"):
            load(damaged, "data")


@pytest.mark.parametrize(
    "content",
    [7, [], [1], [1, [], {}], ["1", [], {}, b"", b""], [1, 2, {}, b"", b""],
     [1, [2], {}, b"", b""], [-1, [], {}, b"", b""], [1, [], {"2": [1]}, b"", b""],
     [1, [], {"2": [1, b"", [1, 2, 3], b"", b""]}, b"", b""], [1, [], [2], b"", b""],
     [1, [], {"2": ["", b"", [1, 2], b"", b""]}, b"", b""], [1, [], {}, 5, b""],
     [1, [], {}, b"", 5], [1, [], {2: [1, b"", [1, 2], b"", b""]}, b"", b""]],
)  # fmt: skip
def test_other_values_under_a_sound_checksum_are_damage(content: object) -> None:
    """Who wrote them may write the directory, but gets no further than this refusal."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    save(disk, "data", msgpack.packb(content))

    with pytest.raises(StorageError, match="must be replaced"):
        load(disk, "data")
