"""The verbs that wait are coroutine functions, so tools and mocks of others know that they wait."""

from __future__ import annotations

import importlib
import inspect
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from coordinator.client import Session
from coordinator.client.locks import Acquired, LockQueue

PACKAGES = [
    "coordinator",
    "coordinator.client",
    "coordinator.client.locks",
    "coordinator.errors",
    "coordinator.testing",
    "coordinator.recipes",
]
"""Whose names users import."""


def named_in(package: str) -> list[tuple[str, Any]]:
    """Return the classes and functions that a package exports."""
    module = importlib.import_module(package)
    own = [each for each in vars(module) if not each.startswith("_")]
    names = getattr(module, "__all__", None) or getattr(module, "_HOMES", None) or own
    found = [(name, getattr(module, name)) for name in names]
    return [(name, each) for name, each in found if callable(each) and hasattr(each, "__module__")]


def waiting_verbs(each: Any) -> dict[str, Any]:
    """Return the public functions of a class, or a function itself, of which something is awaited.

    ``call`` and ``begin`` return what they are given."""
    verbs = inspect.getmembers(each, inspect.isroutine) if isinstance(each, type) else [("", each)]
    return {
        name: verb
        for name, verb in verbs
        if not name.startswith("_")
        and name not in ("begin", "call")
        and (
            inspect.iscoroutinefunction(verb)
            or str(getattr(verb, "__annotations__", {}).get("return")).startswith("Coroutine[")
        )
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_verbs_that_wait_are_coroutine_functions(package: str) -> None:
    """So Python warns of one that nobody awaits, and refuses one that is awaited twice."""
    named = named_in(package)

    assert named
    assert [
        f"{name}.{verb}"
        for name, each in named
        for verb, function in waiting_verbs(each).items()
        if not inspect.iscoroutinefunction(function)
    ] == []


@pytest.mark.parametrize("kind", [Session, LockQueue, Acquired])
def test_verbs_of_mocks_are_awaited(kind: type) -> None:
    """``create_autospec`` makes an AsyncMock of a coroutine function alone."""
    mocked, verbs = create_autospec(kind, instance=True), waiting_verbs(kind)

    assert verbs
    assert all(isinstance(getattr(mocked, name), AsyncMock) for name in verbs)
