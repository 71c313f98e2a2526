"""From the request target to a path: decoded once, hostile forms refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.errors import BadArgumentsError
from coordinator.service.reads.reads import LINEARIZABLE, STALE, at_least
from coordinator.wire.routes.paths import name_at, path_url, target_path, znode_path
from coordinator.wire.routes.queries import READ_MODES, Query, parsed_integer


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/tree", "/"),
        ("/v1/tree/", "/"),
        ("/v1/tree?children", "/"),
        ("/v1/tree/a/b", "/a/b"),
        ("/v1/tree/a?x=/../", "/a"),
        ("/v1/tree/gr%C3%B6%C3%9Fer", "/größer"),
        ("/v1/tree/100%25", "/100%"),
        ("/v1/tree/%252F", "/%2F"),
        ("/v1/tree/a.b/..c/...", "/a.b/..c/..."),
        ("/v1/tree/a b+c", "/a b+c"),
        ("/v1/tree/{x}", "/{x}"),
        ("http://host:1/v1/tree/a", "/a"),
        ("/v1/tree/lock-", "/lock-"),
        ("/v1/%74ree/a", "/a"),
    ],
)
def test_a_target_names_one_path(target: str, path: str) -> None:
    """Each segment is decoded once, by us and nobody else."""
    assert znode_path(target) == path


@pytest.mark.parametrize(
    "target",
    [
        "/v1/tree//a",
        "/v1/tree/a//b",
        "/v1/tree/a/",
        "/v1/tree/.",
        "/v1/tree/..",
        "/v1/tree/a/../b",
        "/v1/tree/%2e%2e",
        "/v1/tree/%2E/a",
        "/v1/tree/a%2Fb",
        "/v1/tree/a%2fb",
        "/v1/tree/%00",
        "/v1/tree/a%0Ab",
        "/v1/tree/%7F",
        "/v1/tree/%C2%85",
        "/v1/tree/%FF",
        "/v1/tree/%ED%A0%80",
        "/v1/tree/%",
        "/v1/tree/%2",
        "/v1/tree/%zz",
        "/v1/tree/%+1",
    ],
)
def test_a_hostile_target_is_refused(target: str) -> None:
    """What a proxy could read otherwise than we do is a 400, never a different znode."""
    with pytest.raises(BadArgumentsError, match="path: expected"):
        znode_path(target)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1))
def test_every_name_has_a_url(name: str) -> None:
    """What Location says leads back to the znode."""
    if name not in (".", ".."):
        assert znode_path(path_url(f"/a/{name}")) == f"/a/{name}"


def test_a_lock_may_have_a_slash_in_its_name() -> None:
    """A lock's name is one segment; there %2F is a slash."""
    assert name_at("/v1/locks/a%2Fb/grants/1-2", 2, "name") == "a/b"
    with pytest.raises(BadArgumentsError):
        name_at("/v1/locks/%2E%2E", 2, "name")


def test_absolute_targets_lose_their_origin() -> None:
    """A proxy may send the whole URL."""
    assert target_path("http://h") == "/"
    assert target_path("http://h:1/v1/locks?x") == "/v1/locks"


def test_a_query_is_read_strictly() -> None:
    """Unknown, repeated and unreadable parameters are refused by name."""
    assert Query("stale", READ_MODES).read_mode() == STALE
    assert Query("at_least_zxid=7", READ_MODES).read_mode() == at_least(7)
    assert Query("", READ_MODES).read_mode() == LINEARIZABLE
    assert Query("stale=false", READ_MODES).read_mode() == LINEARIZABLE
    for raw in (
        "exepcted_version=3",
        "stale&stale",
        "stale=yes",
        "at_least_zxid=-1",
        "at_least_zxid=1e3",
        "at_least_zxid=",
        "at_least_zxid=%D9%A3",
        "at_least_zxid=99999999999999999999999",
        "stale&at_least_zxid=1",
        "%FF=1",
        "&".join(["stale"] * 2_000),
    ):
        with pytest.raises(BadArgumentsError, match="query"):
            Query(raw, READ_MODES).read_mode()


@pytest.mark.parametrize("text", ["", "+1", "1_0", " 1", "0x1", "1.0", "٣", "--1", "9" * 30])
def test_only_plain_integers_are_integers(text: str) -> None:
    """Python reads more as an integer than the wire allows."""
    with pytest.raises(BadArgumentsError, match="expected an integer"):
        parsed_integer(text, "header")
