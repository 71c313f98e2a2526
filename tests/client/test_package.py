"""What the package offers, and that importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coordinator
import recipes
from coordinator import errors


def test_importing_the_package_loads_no_client() -> None:
    """The server and the command line import their rooms without paying for the others."""
    program = (
        "import sys, coordinator, recipes, recipes.contention\n"
        "print(sorted({'aiohttp', 'asyncio', 'msgpack'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_every_error_is_exported_with_its_type() -> None:
    """Each class of the tree can be had from ``coordinator``, and type checkers know it."""
    source = Path(coordinator.__file__).read_text(encoding="utf-8")
    for kind in errors.REGISTRY.values():
        name = kind.__name__
        assert getattr(coordinator, name) is kind
        assert f"{name} as {name}" in source, f"add {name} to coordinator/__init__.py"


def test_every_recipe_is_exported() -> None:
    """``from recipes import ...`` gives what its homes define."""
    for name, home in recipes._HOMES.items():
        assert getattr(recipes, name) is getattr(sys.modules[home], name)


@pytest.mark.parametrize("package", [coordinator, recipes])
def test_what_is_not_there_is_an_attribute_error(package: object) -> None:
    """A typing mistake in an import says which package lacks what."""
    with pytest.raises(AttributeError, match="has no attribute"):
        package.NoSuchError  # type: ignore[attr-defined]  # noqa: B018


def test_the_public_typing_is_clean() -> None:
    """mypy --strict accepts the example of every face, and refuses the wrong ones."""
    pytest.importorskip("mypy")
    example = Path(__file__).with_name("typing_example.py")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", str(example)],
        capture_output=True,
        text=True,
        check=False,
        cwd=example.parent.parent.parent,
    )
    assert done.returncode == 0, done.stdout
