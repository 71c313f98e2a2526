"""Paths: what is valid, what is refused and why, and the arithmetic of parents and names."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.errors import BadArgumentsError
from coordinator.model.limits import MachineLimits
from coordinator.state import paths

LIMITS = MachineLimits(path_bytes_max=32, path_depth_max=4)

REFUSED = [
    ("", "start with a slash"),
    ("a", "start with a slash"),
    ("a/b", "start with a slash"),
    ("/a/", "no slash at the end"),
    ("//", "no slash at the end"),
    ("//a", "no empty segment"),
    ("/a//b", "no empty segment"),
    ("/.", "no segment"),
    ("/..", "no segment"),
    ("/a/./b", "no segment"),
    ("/a/..", "no segment"),
    ("/a\x00", "no control characters"),
    ("/a\n", "no control characters"),
    ("/a\x7f", "no control characters"),
    ("/a\x85b", "no control characters"),
    ("/a\ud800", "no control characters or surrogates"),
    ("/" + "x" * 32, "at most 32 bytes, found 33"),
    ("/" + "ü" * 16, "at most 32 bytes, found 33"),
    ("/a/b/c/d/e", "at most 4 segments, found 5"),
]

TAKEN = [
    "/", "/a", "/a/b/c/d", "/...", "/.a", "/a.", "/..a", "/ ", "/ä", "/日本", "/🔒", "/%2F", "/\\",
    "/" + "x" * 31, "/\ufffd", "/\u200b",
]  # fmt: skip


@pytest.mark.parametrize(("path", "reason"), REFUSED, ids=[ascii(path) for path, _ in REFUSED])
def test_bad_path_is_refused_with_the_rule_it_breaks(path: str, reason: str) -> None:
    """A string that is not a path is BadArguments; the message names the rule, in ASCII."""
    with pytest.raises(BadArgumentsError, match=reason) as caught:
        paths.validate(path, LIMITS)

    assert str(caught.value).encode()


@pytest.mark.parametrize("path", TAKEN, ids=ascii)
def test_good_path_is_taken(path: str) -> None:
    """Any Unicode without control characters is a name."""
    paths.validate(path, LIMITS)


@pytest.mark.parametrize("path", ["/", "/a/", "/a/b-", "/a/.", "/x"])
def test_prefix_of_a_sequential_name_is_taken(path: str) -> None:
    """A sequential znode's path may end where its number begins, also with a slash."""
    paths.validate_sequential(path, LIMITS)


@pytest.mark.parametrize("path", ["", "a", "//", "/a//", "/a/../b", "/\x00", "/" + "x" * 22])
def test_bad_prefix_of_a_sequential_name_is_refused(path: str) -> None:
    """The name with its number must be a path within the limits."""
    with pytest.raises(BadArgumentsError):
        paths.validate_sequential(path, LIMITS)


def test_a_long_path_is_cut_in_the_message() -> None:
    """A message does not grow with what a client sends."""
    with pytest.raises(BadArgumentsError) as caught:
        paths.validate("/" + "x" * 100_000, LIMITS)

    assert len(str(caught.value)) < 300
    assert len(caught.value.fields["path"]) <= 100


@given(st.text(max_size=12))
def test_every_string_is_taken_or_refused(text: str) -> None:
    """No string makes validation raise anything but BadArguments."""
    try:
        paths.validate(text, LIMITS)
    except BadArgumentsError:
        return

    assert text == "/" or all(segment not in {"", ".", ".."} for segment in text[1:].split("/"))
    if text != "/":
        assert paths.join(*paths.split(text)) == text


def test_what_is_taken_at_a_glance_matches_the_pattern() -> None:
    """Every short text of the characters that matter."""
    plain = 0
    for length in range(7):
        for letters in product("/.a\x1f\x7fé", repeat=length):
            text = "".join(letters)
            if paths._is_plain(text):
                plain += 1
                assert paths._PATH.fullmatch(text) is not None, repr(text)
    assert plain > 40


def test_split_join_depth() -> None:
    """Parent and name come apart and together again, also under the root."""
    assert paths.split("/a") == ("/", "a")
    assert paths.split("/a/b/c") == ("/a/b", "c")
    assert paths.join("/", "a") == "/a"
    assert paths.join("/a/b", "c") == "/a/b/c"
    assert [paths.depth(path) for path in ("/", "/a", "/a/b")] == [0, 1, 2]


def test_sequence_suffix_grows_beyond_ten_digits() -> None:
    """Ten digits, zero-padded; wider beyond; no wrap at 2^31."""
    assert paths.sequence_suffix(42) == "0000000042"
    assert paths.sequence_suffix(2**31) == "2147483648"
    assert paths.sequence_suffix(10**10) == "10000000000"
