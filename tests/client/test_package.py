"""What the package offers, and that importing it costs nothing."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import create_autospec

import pytest

import coordinator
from coordinator import errors, recipes


def test_importing_the_package_loads_no_client() -> None:
    """The server and the command line import their rooms without paying for the others."""
    program = (
        "import sys, coordinator, coordinator.recipes, coordinator.model.queue_order\n"
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
    """``from coordinator.recipes import ...`` gives what its homes define."""
    for name, home in recipes._HOME_OF.items():
        assert getattr(recipes, name) is getattr(sys.modules[home], name)


@pytest.mark.parametrize("package", [coordinator, recipes])
def test_the_names_are_there_for_tools(package: ModuleType) -> None:
    """``dir`` and ``import *`` know what is loaded when it is first used."""
    scope: dict[str, object] = {}
    exec(f"from {package.__name__} import *", scope)  # noqa: S102

    assert set(package.__all__) <= scope.keys()
    assert set(package.__all__) <= set(dir(package))
    assert set(recipes.__all__) == set(recipes._HOME_OF)


def test_the_recipes_are_exported_by_the_package_too() -> None:
    """So that most programs need one import."""
    for name in recipes.__all__:
        assert getattr(coordinator, name) is getattr(recipes, name)
        assert name in coordinator.__all__


def test_a_project_may_have_a_package_of_recipes_of_its_own(tmp_path: Path) -> None:
    """Tutorials like the name; ours is ``coordinator.recipes``."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "__init__.py").write_text("SOUP = 'leek'\n")
    (tmp_path / "cook.py").write_text(
        "import recipes\nfrom coordinator import Lock\nprint(recipes.SOUP, Lock.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "cook.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "leek coordinator.recipes.lock\n"


def test_the_version_is_that_of_the_distribution() -> None:
    """As every library says it."""
    assert re.fullmatch(r"\d+\.\d+\.\d+.*|0\+checkout", coordinator.__version__)


KINDS = [
    recipes.Lock, recipes.ReentrantLock, recipes.Semaphore, recipes.MultiLock, recipes.TreeLock,
    recipes.Election, recipes.Grant, recipes.Once, recipes.TokenBucket, recipes.TokenChunk,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_is_an_ordinary_class_to_tools(kind: type) -> None:
    """Signatures have the arguments, help tells of every method, a mock refuses wrong arguments."""
    verbs = {"acquire", "try_acquire", "release", "campaign", "resign", "verify", "run", "take"}
    there = verbs & set(dir(kind))
    shown = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    mocked = create_autospec(kind, instance=True)

    assert there, f"{kind}: name its verb above"
    for name in there:
        parameters = list(inspect.signature(getattr(kind, name)).parameters)
        assert parameters[0] == "self"
        # Python 3.13 and newer give each parameter of a long signature a line.
        line = rf"^ \|  {name}\([\s|]*self\b"
        assert re.search(line, shown, re.MULTILINE), f"{name} is not in the help"
        assert getattr(kind, name).__qualname__.endswith(f".{name}")
        with pytest.raises(TypeError, match=r"nonsense|missing a required"):
            getattr(mocked, name)(nonsense=1)


@pytest.mark.parametrize("package", [coordinator, recipes])
def test_what_is_not_there_is_an_attribute_error(package: object) -> None:
    """A typing mistake in an import says which package lacks what."""
    with pytest.raises(AttributeError, match="has no attribute"):
        package.NoSuchError  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.check
def test_the_public_typing_is_clean() -> None:
    """mypy --strict accepts the example of each client, and refuses the wrong ones."""
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
