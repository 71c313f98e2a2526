"""The planted bugs still fit the code, and the machinery that hunts them tells the truth.

``make mutants`` tries all of them; here are a few quick ones, so that nothing of it rots.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.patching import (
    Patch,
    PatchError,
    apply_patch,
    load_patch,
    parse_patch,
    patch_names,
)
from tests.mutants.trial import ROOT, private_copy, try_mutant

NAMES = patch_names()
QUICK = ("release-by-name", "ephemerals-kept-after-close")
LIMIT_S = 100.0
TEXT = """\
wrong: it subtracts
matters: the sum is
  never right
source: none
find: pytest tests/test_sum.py

--- coordinator/sum.py
@@
 def add(one, other):
-    return one + other
+    return one - other
"""
CODE = "def add(one, other):\n    return one + other\n"


def test_the_list_has_the_size_that_was_asked_for() -> None:
    """At least 25 known ways to be wrong are planted, each under its own text."""
    changes = {load_patch(name).hunks for name in NAMES}

    assert len(changes) == len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_every_patch_fits_the_code(name: str, tmp_path: Path) -> None:
    """Each patch finds its place exactly once, is a program still, and names tests that exist."""
    patch = load_patch(name)
    for hunk in patch.hunks:
        (tmp_path / hunk.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / hunk.path).write_bytes((ROOT / hunk.path).read_bytes())

    apply_patch(patch, tmp_path)

    assert not any(hunk.path.startswith("tests/") for hunk in patch.hunks), "it changes the product"
    for find in patch.finds:
        kind, *arguments = find.split()
        assert kind in ("simulation", "pytest")
        if kind == "pytest":
            for path, _, test in (each.partition("::") for each in arguments):
                assert f"def {test.partition('[')[0]}" in (ROOT / path).read_text("utf-8")


@pytest.mark.check
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.timeout(4 * LIMIT_S)
def test_a_planted_bug_is_found(name: str) -> None:
    """A detector notices the bug in a private copy, and nothing in the code as it is."""
    result = try_mutant(load_patch(name), LIMIT_S)

    assert result.is_found, f"{name}: {result.verdict}"
    assert result.finding.what


@pytest.mark.check
@pytest.mark.timeout(4 * LIMIT_S)
def test_what_changes_nothing_survives() -> None:
    """A patch that only rewords a docstring is found by nobody: detectors do not cry wolf."""
    result = try_mutant(
        harmless("pytest tests/state/test_paths.py", "pytest tests/state/test_traces.py"), LIMIT_S
    )

    assert result.verdict == "survived"


@pytest.mark.check
@pytest.mark.timeout(4 * LIMIT_S)
def test_what_a_skipped_test_might_have_found_is_not_known(tmp_path: Path) -> None:
    """A detector that needs what is not installed here says so, and is no proof of anything."""
    skipped = tmp_path / "test_skipped.py"
    skipped.write_text("import pytest\n\ndef test_one():\n    pytest.skip('no server here')\n")

    result = try_mutant(harmless(f"pytest {skipped}"), LIMIT_S)

    assert result.verdict.startswith("no trial: ")
    assert "no server here" in result.verdict


def test_a_patch_is_read_and_laid_over(tmp_path: Path) -> None:
    """Headers may go on over lines; a hunk replaces what it expects."""
    patch = written(tmp_path, CODE)

    apply_patch(patch, tmp_path)

    assert patch.matters == "the sum is never right"
    assert (tmp_path / "coordinator/sum.py").read_text() == CODE.replace("+", "-")


def test_a_patch_follows_code_to_another_level(tmp_path: Path) -> None:
    """What was put into a class, as it was, is found there, and changed at its level."""
    inside = "class Sum:\n" + "".join(f"    {line}\n" for line in CODE.splitlines())

    apply_patch(written(tmp_path, inside), tmp_path)

    assert (tmp_path / "coordinator/sum.py").read_text() == inside.replace("+", "-")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (CODE.replace("one + other", "sum((one, other))"), "found 0 times"),
        (CODE + CODE, "found 2 times"),
        (CODE.replace("def", "async def"), "found 0 times"),
    ],
    ids=["changed", "twice", "not a whole line"],
)
def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path, code: str, said: str) -> None:
    """Code that moved on makes the patch fail loudly, and leaves the file as it was."""
    patch = written(tmp_path, code)

    with pytest.raises(PatchError, match=said):
        apply_patch(patch, tmp_path)

    assert (tmp_path / "coordinator/sum.py").read_text() == code


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("source: none\n", ""),
        TEXT.replace("find:", "found:"),
        TEXT.replace("@@\n", ""),
        TEXT.replace("-    return one + other\n+    return one - other\n", ""),
        TEXT.partition("\n---")[0],
    ],
    ids=["no source", "unknown word", "no hunk", "no change", "no file"],
)
def test_a_malformed_patch_is_refused(text: str) -> None:
    """What is incomplete is never tried as a mutant that happens to survive."""
    with pytest.raises(PatchError):
        parse_patch("sum", text)


def test_a_copy_is_the_code_and_the_working_tree_stays(tmp_path: Path) -> None:
    """The patch is laid over a copy of its own, which is gone afterwards."""
    patch = load_patch("release-by-name")
    path = patch.hunks[0].path
    before = (ROOT / path).read_bytes()

    with private_copy(patch) as home:
        assert (home / path).read_bytes() != before
        assert (home / "tests/simulation/world.py").is_file()

    assert not home.exists()
    assert (ROOT / path).read_bytes() == before


def written(root: Path, code: str) -> Patch:
    (root / "coordinator").mkdir()
    (root / "coordinator/sum.py").write_text(code)
    return parse_patch("sum", TEXT)


def harmless(*detectors: str) -> Patch:
    hunk = replace(
        parse_patch("harmless", TEXT).hunks[0],
        path="coordinator/state/sessions.py",
        old="        return len(self._sessions)\n",
        new="        return len(self._sessions)  # as it was\n",
    )
    found = load_patch("release-by-name")
    return replace(found, name="harmless", hunks=(hunk,), finds=detectors)
