"""What every guard agrees on: what a token is, what a resource is, who needs which extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from coordinator.errors import BadArgumentsError, StaleTokenError
from coordinator.guards.tokens import (
    RESOURCE_BYTES_MAX,
    TOKEN_MAX,
    checked_resource,
    checked_table,
    checked_token,
    checked_write_number,
    refuse_lower,
    stale_write,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("wrong", [UUID(int=34), str(UUID(int=34)), "34", 34.0, True, None, b"34"])
def test_what_is_not_an_integer_is_a_type_error(wrong: object) -> None:
    """A random id has no order, so it is no token."""
    with pytest.raises(TypeError, match="only integers issued by the cluster"):
        checked_token(wrong)


@pytest.mark.parametrize("wrong", [0, -1, TOKEN_MAX + 1])
def test_a_token_has_the_range_that_the_cluster_issues(wrong: int) -> None:
    """From 1 up to what fits every store's 64-bit integer."""
    with pytest.raises(BadArgumentsError, match="fencing token"):
        checked_token(wrong)


def test_only_a_lower_token_is_refused_and_both_are_named() -> None:
    """Equal tokens are the same holder's; a refusal says who was late."""
    refuse_lower("accounts/17", 34, 34)
    refuse_lower("accounts/17", 35, 34)

    with pytest.raises(StaleTokenError, match=r"accounts/17: token 33 is stale, 34 has") as caught:
        refuse_lower("accounts/17", 33, 34)

    assert (caught.value.token, caught.value.highest_token) == (33, 34)
    assert caught.value.resource == "accounts/17"
    assert caught.value.definite


@pytest.mark.parametrize("wrong", ["7", 7.0, True, b"7"])
def test_a_write_number_is_an_integer(wrong: object) -> None:
    """None is none; anything else that is no integer has no place in the order."""
    assert checked_write_number(None) is None
    assert checked_write_number(7) == 7
    with pytest.raises(TypeError, match="write number"):
        checked_write_number(wrong)
    for number in (0, -1, TOKEN_MAX + 1):
        with pytest.raises(BadArgumentsError, match="write number"):
            checked_write_number(number)


def test_a_late_write_is_told_its_number_and_the_highest() -> None:
    """All that is needed to find it in a log."""
    error = stale_write("accounts/17", 34, 6, 7)

    assert (error.token, error.write_number, error.highest_write_number) == (34, 6, 7)
    assert "accounts/17: write 6 under token 34 is late or repeated, 7 has" in error.message
    assert error.definite


@pytest.mark.parametrize("wrong", ["", "a\0b", "x" * (RESOURCE_BYTES_MAX + 1), "\udc80"])
def test_a_resource_fits_the_key_of_every_store(wrong: str) -> None:
    """Refused here rather than cut short or mangled by one of them."""
    with pytest.raises(BadArgumentsError, match="resource"):
        checked_resource(wrong)


@pytest.mark.parametrize("wrong", ["", "a b", "a;DROP TABLE b", "a.b.c", "1a", "ä", "a\n"])
def test_a_table_is_a_plain_name(wrong: str) -> None:
    """It becomes SQL, so nothing else may."""
    with pytest.raises(BadArgumentsError, match="table"):
        checked_table(wrong)


@pytest.mark.parametrize(
    ("library", "guard", "extra"),
    [
        ("psycopg", "PostgresGuard", "postgresql"),
        ("pymysql", "MysqlGuard", "mysql"),
        ("redis", "RedisGuard", "redis"),
        ("botocore", "S3Guard", "s3"),
    ],
)
def test_a_guard_without_its_client_library_names_the_extra(
    library: str, guard: str, extra: str
) -> None:
    """``import coordinator.guards`` works without any of them; using one says what to install."""
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"import coordinator.guards\ncoordinator.guards.SqliteGuard\n"
        f"try:\n    from coordinator.guards import {guard}\n"
        f"except ImportError as error:\n    print(error)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert f"pip install 'raft-coordinator[{extra}]'" in result.stdout
    assert guard in result.stdout
