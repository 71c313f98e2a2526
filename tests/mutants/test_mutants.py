"""The planted bugs still fit the code, and the machinery that hunts them tells the truth.

``make mutants`` tries all of them; here are a few quick ones, so that nothing of it rots.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.patching import (
    Edit,
    Patch,
    PatchError,
    apply_patch,
    changed_files,
    load_patch,
    parse_patch,
    patch_names,
)
from tests.mutants.places import meaning
from tests.mutants.trial import ROOT, private_copy, try_mutant
from tests.mutants.writing import edits_of, plain_meaning

NAMES = patch_names()
QUICK = ("release-by-name", "ephemerals-kept-after-close")
LIMIT_S = 100.0
TEXT = """\
wrong: it subtracts
matters: the sum is
  never right
source: none
find: pytest tests/test_sum.py

--- add
@@
-return one + other
+return one - other
"""
CODE = "def add(one, other):\n    return one + other\n"


def test_the_list_has_the_size_that_was_asked_for() -> None:
    """At least 25 known ways to be wrong are planted, each under its own text."""
    changes = {load_patch(name).edits for name in NAMES}

    assert len(changes) == len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_every_patch_fits_the_code(name: str) -> None:
    """Each patch finds its place exactly once, is a program still, and names tests that exist."""
    patch = load_patch(name)

    assert changed_files(name, patch.edits, ROOT)
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
    """Headers may go on over lines; what goes is replaced by what comes."""
    patch = written(tmp_path, CODE)

    apply_patch(patch, tmp_path)

    assert patch.matters == "the sum is never right"
    assert meaning(ast.parse(the_sum(tmp_path))) == meaning(ast.parse(CODE.replace("+", "-")))


MOVED = {
    "other spaces": "def add(one,other): return (one  +  other)  # the sum",
    "other lines": "def add(\n    one, other\n):\n  return (\n        one\n        + other\n    )",
    "into a function": f"def sums():\n{textwrap.indent(CODE, '    ')}",
    "beside others": f"def less(one, other):\n    return one - other\n\n{CODE}\nless(1, 2)",
}


@pytest.mark.parametrize("code", MOVED.values(), ids=MOVED)
def test_a_patch_follows_its_code(tmp_path: Path, code: str) -> None:
    """Formatted, moved to another file or beside other code, it is the same change."""
    patch = written(tmp_path, code)
    if code.startswith("def sums"):
        patch = replace(patch, edits=(replace(patch.edits[0], scope="sums.add"),))
    (tmp_path / "coordinator/sum.py").rename(tmp_path / "coordinator/other.py")

    apply_patch(patch, tmp_path)

    text = (tmp_path / "coordinator/other.py").read_text()
    expected = re.sub(r"\+(?=\s+other)", "-", code)
    assert meaning(ast.parse(text)) == meaning(ast.parse(expected))


TWICE = "def add(one, other):\n    one = one + other\n    if one:\n        return one + other\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (CODE.replace("one + other", "sum((one, other))"), "found 0 times"),
        (CODE + CODE, "found 2 times"),
        (CODE.replace("add", "plus"), "found 0 times"),
        (TWICE.replace("one = one + other", "return one + other"), "found 2 times"),
    ],
    ids=["changed", "two functions", "another name", "twice"],
)
def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path, code: str, said: str) -> None:
    """Code that moved on makes the patch fail loudly, and leaves the file as it was."""
    patch = written(tmp_path, code)

    with pytest.raises(PatchError, match=said):
        apply_patch(patch, tmp_path)

    assert the_sum(tmp_path) == code


def test_one_of_several_places_is_named_by_its_number(tmp_path: Path) -> None:
    """And refused when they are more, or fewer, than were there when it was written."""
    patch = written(tmp_path, TWICE)
    text = TEXT.replace(
        "@@\n-return one + other\n+return one - other", "@@ 2 of {}\n-one + other\n+one"
    )

    apply_patch(parse_patch("sum", text.format(2)), tmp_path)

    assert "one = one + other" in the_sum(tmp_path)
    assert "return (one)" in the_sum(tmp_path)
    (tmp_path / "coordinator/sum.py").write_text(TWICE)
    with pytest.raises(PatchError, match="expected 3 times, found 2 times"):
        apply_patch(parse_patch("sum", text.format(3)), tmp_path)
    assert patch.name == "sum"


CHANGES = {
    "an expression": ("return one + other", "return one - other"),
    "a statement goes": ("    one = one + other\n", ""),
    "a statement comes": ("    if one:\n", "    print(one)\n    if one:\n"),
    "a condition goes": ("    if one:\n        return one + other\n", "    return one + other\n"),
    "an argument comes": ("add(one, other)", "add(one, other, *more)"),
    "an import comes": ("    if one:", "    if isinstance(one, Decimal):"),
}


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_code_is_written_as_a_patch(tmp_path: Path, old: str, new: str) -> None:
    """What is written is what makes the same change again."""
    written(tmp_path, TWICE)
    after = TWICE.replace(old, new)
    if "Decimal" in new:
        after = f"from decimal import Decimal\n\n{after}"

    edits = edits_of(tmp_path, {"coordinator/sum.py": after})
    text = TEXT.partition("\n---")[0] + "\n" + "".join(map(str, edits))
    apply_patch(parse_patch("sum", text), tmp_path)

    assert plain_meaning(the_sum(tmp_path)) == plain_meaning(after)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("source: none\n", ""),
        TEXT.replace("find:", "found:"),
        TEXT.replace("@@\n", ""),
        TEXT.replace("-return one + other\n+return one - other\n", ""),
        TEXT.replace("-return one + other\n", ""),
        TEXT.replace("@@", "@@ 2"),
        TEXT.partition("\n---")[0],
    ],
    ids=["no source", "unknown word", "no change", "nothing", "nowhere", "no place", "no function"],
)
def test_a_malformed_patch_is_refused(text: str) -> None:
    """What is incomplete is never tried as a mutant that happens to survive."""
    with pytest.raises(PatchError):
        parse_patch("sum", text)


def test_a_copy_is_the_code_and_the_working_tree_stays(tmp_path: Path) -> None:
    """The patch is laid over a copy of its own, which is gone afterwards."""
    patch = load_patch("release-by-name")
    path = next(iter(changed_files("", patch.edits, ROOT))).relative_to(ROOT)
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


def the_sum(root: Path) -> str:
    return (root / "coordinator/sum.py").read_text()


def harmless(*detectors: str) -> Patch:
    found = load_patch("release-by-name")
    same = Edit(
        "SessionTable.__len__", "return len(self._sessions)", "return len((self._sessions))"
    )
    return replace(found, name="harmless", edits=(same,), finds=detectors)
