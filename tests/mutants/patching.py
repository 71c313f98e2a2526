"""A patch: one known way to be wrong, as a change of what some functions mean.

::

    wrong: what the code does now, in one sentence
    matters: what somebody would lose by it
    source: where this mistake was made before, or which rule it breaks
    find: simulation seconds=30 seeds=0..19
    find: pytest tests/raft/test_engine_rows.py::test_row_8_replies_of_an_older_term_commit_nothing

    --- SyncTask.wait
    @@
    -what goes
    +what comes
    @@ 2 of 3
    -what goes in the second of three places
    +what comes

After ``---`` is a function, or a class, wherever it is (``<module>``: what is in none of them).
What goes is an expression, or statements, and must be there exactly once, or as often as is said;
it is compared by meaning (``places``). What comes may be nothing. If nothing goes, and something
comes to ``<module>``, it is an import, at the top of the file of the change before.

So a patch survives that files are renamed, and that code is moved and formatted, and fails loudly
when the code that it is about has changed.

``python -m tests.mutants.writing`` writes these lines from a change of the working tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.places import TOP, Place, files_with, parsed, places, replaced, top_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "patches"
_WORDS = ("wrong", "matters", "source", "find")
_PLACE = re.compile(r"(?: (\d+) of (\d+))?\n")


class PatchError(Exception):
    """The patch is malformed, or does not fit the code any more; says where."""

    def __init__(self, said: str, found: int = 0) -> None:
        super().__init__(said)
        self.found = found


@dataclass(frozen=True, slots=True)
class Edit:
    """In the function ``scope`` the code ``old`` becomes ``new``: where it is once, or in one of so
    many places."""

    scope: str
    old: str
    new: str
    number: int = 1
    count: int = 1

    def __str__(self) -> str:
        place = "" if self.count == 1 else f" {self.number} of {self.count}"
        signed = [f"-{each}" for each in self.old.splitlines()]
        signed += [f"+{each}" for each in self.new.splitlines()]
        return "\n".join([f"--- {self.scope}", f"@@{place}", *signed, ""])


@dataclass(frozen=True, slots=True)
class Patch:
    """``finds`` are the detectors, tried in order until one finds it."""

    name: str
    wrong: str
    matters: str
    source: str
    finds: tuple[str, ...]
    edits: tuple[Edit, ...]


def patch_names() -> list[str]:
    """Return the names of all patches, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.patch"))


def load_patch(name: str) -> Patch:
    """Read a patch of the list by its name."""
    path = FOLDER / f"{name}.patch"
    if not path.exists():
        raise PatchError(f"there is no mutant {name!r}")
    return parse_patch(name, path.read_text(encoding="utf-8"))


def parse_patch(name: str, text: str) -> Patch:
    """Read a patch; raises PatchError unless every part is there."""
    head, separator, body = text.partition("\n--- ")
    said: dict[str, list[str]] = {word: [] for word in _WORDS}
    word = ""
    for line in filter(None, head.splitlines()):
        if line.startswith("  ") and word:  # the sentence goes on
            said[word][-1] += " " + line.strip()
            continue
        word, _, rest = line.partition(": ")
        if word not in said or not rest:
            raise PatchError(f"{name}: expected one of {_WORDS}, found {line!r}")
        said[word].append(rest.strip())
    if not separator or not all(said.values()):
        missing = [word for word in _WORDS if not said[word]] or ["a file to change"]
        raise PatchError(f"{name}: expected {', '.join(missing)}, found none")
    edits: list[Edit] = []
    for part in ("\n" + separator.strip() + " " + body).split("\n--- ")[1:]:
        scope, _, changes = part.partition("\n")
        edits += [_edit(name, scope.strip(), each) for each in changes.split("@@")[1:]]
    if not edits:
        raise PatchError(f"{name}: expected a change, found none")
    return Patch(
        name,
        said["wrong"][0],
        said["matters"][0],
        said["source"][0],
        tuple(said["find"]),
        tuple(edits),
    )


def _edit(name: str, scope: str, text: str) -> Edit:
    place = _PLACE.match(text)
    if place is None:
        raise PatchError(f"{name}: {scope}: expected a place such as '2 of 3', found {text!r}")
    lines = text[place.end() :].rstrip("\n").split("\n")
    if any(line[:1] not in ("-", "+") for line in lines):
        raise PatchError(f"{name}: {scope}: expected '-' or '+' before each line, found {text!r}")
    old, new = ("\n".join(each[1:] for each in lines if each[0] == sign) for sign in "-+")
    if old == new or not (old.strip() or scope == TOP):
        raise PatchError(f"{name}: {scope}: a change of nothing, or nowhere")
    return Edit(scope, old, new, int(place[1] or 1), int(place[2] or 1))


def apply_patch(patch: Patch, root: Path) -> tuple[Path, ...]:
    """Change the files below ``root``, and return them; raises PatchError, before any is written,
    if one differs."""
    texts = changed_files(patch.name, patch.edits, root)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return tuple(texts)


def changed_files(name: str, edits: Iterable[Edit], root: Path) -> dict[Path, str]:
    """Return the texts of the files below ``root`` that differ with these edits.

    Raises:
        PatchError: one of them does not fit.
    """
    texts: dict[Path, str] = {}
    changes: dict[Path, list[tuple[Place, Edit, bool]]] = {}
    path: Path | None = None
    for edit in edits:
        if not edit.old:
            if path is None:
                raise PatchError(f"{name}: expected a change before an import, found none")
            changes[path].append((top_of(texts[path]), edit, False))
            continue
        old = parsed(edit.old)
        is_expression = isinstance(old, ast.expr) and isinstance(parsed(edit.new), ast.expr)
        piece = old if is_expression else ast.parse(edit.old).body
        if piece is None:
            raise PatchError(f"{name}: {edit.scope}: expected code, found {edit.old!r}")
        found: list[tuple[Path, Place]] = []
        for file, text in files_with(root, edit.scope, piece):
            texts[file] = text
            found += [(file, place) for place in places(text, edit.scope, piece)]
        if len(found) != edit.count:
            expected = "once" if edit.count == 1 else f"{edit.count} times"
            raise PatchError(
                f"{name}: expected {expected}, found {len(found)} times, in {edit.scope}:\n"
                f"{edit.old}",
                len(found),
            )
        path, place = found[edit.number - 1]
        changes.setdefault(path, []).append((place, edit, is_expression))
    for path, its in changes.items():
        text, behind = texts[path], len(texts[path])
        for place, edit, is_expression in sorted(its, key=lambda each: -each[0].start):
            if place.end > behind:
                raise PatchError(f"{name}: {edit.scope}: two changes of the same code")
            new = edit.new if edit.old else f"{edit.new}\n"
            text, behind = replaced(text, place, new, is_expression=is_expression), place.start
        try:
            compile(text, str(path), "exec")
        except SyntaxError as error:
            raise PatchError(f"{name}: {path.name} is no program any more: {error}") from None
        texts[path] = text
    return {path: texts[path] for path in changes}
