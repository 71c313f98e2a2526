"""The words of one command of a trace, taken one by one until none is left."""

from __future__ import annotations

import shlex

from coordinator.state.commands import Operation
from tests.state import access_words


class Words:
    """One command line: its verb, its first word, and its options."""

    def __init__(self, line: str) -> None:
        words = shlex.split(line)
        self.line = line
        self.verb = words[0]
        self.first = words[1] if len(words) > 1 and "=" not in words[1] else ""
        rest = words[2:] if self.first else words[1:]
        self._options = dict(word.partition("=")[::2] for word in rest)

    def text(self, name: str, default: str = "") -> str:
        return self._options.pop(name, default)

    def maybe_text(self, name: str) -> str | None:
        return self._options.pop(name, None)

    def number(self, name: str, default: int) -> int:
        return int(self._options.pop(name, default))

    def maybe_number(self, name: str) -> int | None:
        value = self._options.pop(name, None)
        return None if value is None else int(value)

    def maybe_answer(self, name: str) -> bool | None:
        value = self._options.pop(name, None)
        return None if value is None else {"yes": True, "no": False}[value]

    def has(self, name: str) -> bool:
        return self._options.pop(name, None) is not None

    def numbers(self) -> dict[str, int]:
        found = {name: int(value) for name, value in self._options.items()}
        self._options.clear()
        return found

    def access(self) -> Operation:
        return access_words.access_operation(self.verb, self.first, self._options)

    def finish(self) -> None:
        assert not self._options, f"{self.line}: not understood: {self._options}"
