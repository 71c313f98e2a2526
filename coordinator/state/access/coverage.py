"""The coverage of a set of rules: the index by which a decision is made.

1. A rule ``/a/b`` is two things: the path itself, and the text ``/a/b/`` that the paths below begin
   with. A rule ``/a/b*`` is one such text, and so is what ``/`` and ``@`` cover.
2. No text of an index begins with another of it, so of all sorted texts only the greatest that is
   not above a path can be one that the path begins with. One search decides, however many rules.
3. Whatever covers a path covers all below it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from coordinator.model.access import ALL_THINGS, ANONYMOUS, Rule, Verb

_ANY_TEXT: Final = "*"


class Coverage:
    """The resources that some prefixes cover."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        exact: set[str] = set()
        texts: set[str] = set()
        for prefix in prefixes:
            if prefix.endswith(_ANY_TEXT):
                texts.add(prefix[:-1])
                continue
            exact.add(prefix)
            if prefix == ALL_THINGS:
                texts.add(prefix)
            elif prefix.startswith("/"):
                texts.add(prefix if prefix == "/" else prefix + "/")
        self._texts: list[str] = []
        for text in sorted(texts):
            if not (self._texts and text.startswith(self._texts[-1])):
                self._texts.append(text)
        self._paths = sorted([each for each in exact if not self.covers_all(each)])
        self._exact = frozenset(self._paths)

    @property
    def scope(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """The covered resources; equal for two that cover the same."""
        return tuple(self._texts), self._exact

    def covers(self, resource: str) -> bool:
        """Whether ``resource`` is covered."""
        return self.covers_all(resource) or resource in self._exact

    def covers_all(self, text: str) -> bool:
        """Whether everything that begins with ``text`` is covered."""
        texts = self._texts
        at = bisect_right(texts, text)
        return at > 0 and text.startswith(texts[at - 1])

    def leads_to(self, path: str) -> bool:
        """Whether something below ``path`` is covered."""
        below = path if path == "/" else path + "/"
        if self.covers_all(below):
            return True
        at = bisect_left(self._texts, below)
        return at < len(self._texts) and self._texts[at].startswith(below)

    def ways(self, path: str) -> list[tuple[str, bool]]:
        """Return the names of children of ``path`` that lead to what is covered; True: all names
        that begin so."""
        below = path if path == "/" else path + "/"
        if self.covers_all(below):
            return [("", True)]
        texts = [each.partition("/") for each in _rests(self._texts, below)]
        exact = [each.partition("/")[0] for each in _rests(self._paths, below)]
        return [(name, not slash) for name, slash, _ in texts] + [(name, False) for name in exact]


def _rests(texts: list[str], beginning: str) -> Iterator[str]:
    """Iterate over what follows ``beginning`` in those of the sorted ``texts`` that have it."""
    for at in range(bisect_left(texts, beginning), len(texts)):
        if not texts[at].startswith(beginning):
            return
        yield texts[at][len(beginning) :]


class IdentityRights:
    """What one identity may do: its rules, by verbs. It does not change."""

    def __init__(self, identity: str, owner: str, rules: Iterable[Rule]) -> None:
        every = tuple(rules)
        self.identity = identity
        self.named = "" if identity == ANONYMOUS else identity
        """The identity as callers say it: nobody is named without a credential."""
        self.owner = owner
        """The name under which it owns the ids of clients: of this incarnation only."""
        self.has_rules = bool(every)
        admin = [each.prefix for each in every if Verb.ADMIN in each.verbs]
        self._admin = Coverage(admin)
        self._read = _of(Verb.READ, admin, every)
        self._write = _of(Verb.WRITE, admin, every)
        self._lock = _of(Verb.LOCK, admin, every)
        self._watch = _of(Verb.WATCH, admin, every)

    def of(self, verb: Verb) -> Coverage:
        """Return where it may ``verb``."""
        if verb is Verb.READ:
            return self._read
        if verb is Verb.WRITE:
            return self._write
        if verb is Verb.LOCK:
            return self._lock
        if verb is Verb.WATCH:
            return self._watch
        return self._admin


def _of(verb: Verb, admin: list[str], rules: tuple[Rule, ...]) -> Coverage:
    return Coverage([*admin, *[each.prefix for each in rules if verb in each.verbs]])
