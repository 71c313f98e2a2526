"""Who types a name of kazoo, redis-py or python-etcd3 on a client gets the line that works here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.client import AsyncClient, Client
from coordinator.client.verbs.hints import line_to_import
from coordinator.client.verbs.peer_names import FAMILIES, HINTS, hint_for


def _names() -> dict[str, list[str]]:
    """Return the names of each library, and of kazoo's recipes, from the file beside this one."""
    text = Path(__file__).with_suffix("").with_name("peer_names.txt").read_text("utf-8")
    lines = re.sub(r"\n  ", " ", text).splitlines()[1:]
    return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}


NAMES = _names()
RECIPES = NAMES.pop("recipes")
THEIRS = sorted({name for names in NAMES.values() for name in names})


@pytest.mark.parametrize("name", THEIRS)
def test_each_public_name_of_a_client_is_ours_or_answered(name: str) -> None:
    """As an attribute of both clients; none that we have is in the tables."""
    if hasattr(Client, name):
        assert hasattr(AsyncClient, name)
        assert name not in HINTS
    else:
        assert hint_for(name) is not None


def test_no_hint_is_in_vain() -> None:
    """Each name is one of theirs, and each pattern fits some that have no line of their own."""
    theirs = {*THEIRS, *RECIPES}
    assert {name for name in HINTS if name not in theirs} == set()
    free = [name for name in theirs if name not in HINTS and not hasattr(Client, name)]
    for pattern, _ in FAMILIES:
        assert any(re.fullmatch(pattern, name) for name in free), pattern


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_of_kazoo_is_ours_or_answered(name: str) -> None:
    """Where it is imported from the package."""
    import coordinator

    assert name in coordinator.__all__ or line_to_import(name) is not None
