"""A patch: one known way to be wrong, as text that is laid over a copy of the code.

::

    wrong: what the code does now, in one sentence
    matters: what somebody would lose by it
    source: where this mistake was made before, or which rule it breaks
    find: simulation seconds=30 seeds=0..19
    find: pytest tests/raft/test_engine_rows.py::test_row_8_replies_of_an_older_term_commit_nothing

    --- coordinator/raft/storage/sync.py
    @@
             context, exactly as it stands
    -        a line that goes
    +        a line that comes

A hunk has no line numbers. What it expects (context and lines that go) must stand exactly once in
the file, at this level of indentation or another: so a patch survives that code moves, and fails
loudly when the code that it is about has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "patches"
SHIFTS = (0, 4, 8, -4, -8)
"""By how many columns code may have moved to another level."""
_WORDS = ("wrong", "matters", "source", "find")


class PatchError(Exception):
    """The patch is malformed, or does not fit the code any more; says where."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """In ``path``, ``old`` (which stands there once) becomes ``new``."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Patch:
    """``finds`` are the detectors, tried in order until one finds it."""

    name: str
    wrong: str
    matters: str
    source: str
    finds: tuple[str, ...]
    hunks: tuple[Hunk, ...]


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
    hunks: list[Hunk] = []
    for part in ("\n" + separator.strip() + " " + body).split("\n--- ")[1:]:
        path, _, changes = part.partition("\n")
        hunks += [_hunk(name, path.strip(), each) for each in changes.split("@@\n")[1:]]
    if not hunks:
        raise PatchError(f"{name}: expected a hunk, found none")
    return Patch(
        name,
        said["wrong"][0],
        said["matters"][0],
        said["source"][0],
        tuple(said["find"]),
        tuple(hunks),
    )


def _hunk(name: str, path: str, text: str) -> Hunk:
    old: list[str] = []
    new: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        sign, rest = line[:1] or " ", line[1:]
        if sign not in " -+":
            raise PatchError(f"{name}: {path}: expected ' ', '-' or '+', found {line!r}")
        if sign != "+":
            old.append(rest + "\n")
        if sign != "-":
            new.append(rest + "\n")
    if old == new or not any(line.strip() for line in old):
        raise PatchError(f"{name}: {path}: a hunk that changes nothing, or stands nowhere")
    return Hunk(path, "".join(old), "".join(new))


def apply_patch(patch: Patch, root: Path) -> None:
    """Change the files below ``root``; raises PatchError, before any is written, if one differs."""
    texts: dict[Path, str] = {}
    for hunk in patch.hunks:
        path = root / hunk.path
        if not path.is_file():
            raise PatchError(f"{patch.name}: {hunk.path} is not there any more")
        text = texts.setdefault(path, path.read_text(encoding="utf-8"))
        places = [
            (at, shift)
            for shift in SHIFTS
            for at in _starts_of_lines(text)
            if text.startswith(_shifted(hunk.old, shift), at)
        ]
        if len(places) != 1:
            raise PatchError(
                f"{patch.name}: expected once, found {len(places)} times, "
                f"in {hunk.path}:\n{hunk.old}"
            )
        at, shift = places[0]
        end = at + len(_shifted(hunk.old, shift))
        texts[path] = text[:at] + _shifted(hunk.new, shift) + text[end:]
    for path, text in texts.items():
        try:
            compile(text, str(path), "exec")
        except SyntaxError as error:
            raise PatchError(f"{patch.name}: {path.name} is no program any more: {error}") from None
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def _starts_of_lines(text: str) -> list[int]:
    return [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]


def _shifted(block: str, shift: int) -> str:
    """Return whole lines moved to the right, or to the left if all of them can."""
    lines = block.splitlines(keepends=True)
    if shift < 0 and any(line.strip() and not line.startswith(" " * -shift) for line in lines):
        return "\0"  # stands nowhere
    return "".join(
        line if not line.strip() else " " * shift + line[max(0, -shift) :] for line in lines
    )
