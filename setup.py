"""The compiled build: ``COORDINATOR_COMPILED=1`` asks for it; without that nothing is compiled.

``pyproject.toml`` says which modules (``[tool.coordinator.compiled]``). They stay readable and are
installed beside what is compiled of them, so tracebacks show their lines. Needs a C compiler and
mypy, which brings mypyc.
"""

import os
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def compiled_modules() -> list[str]:
    """Return the files that are compiled, in order."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        said = tomllib.load(file)["tool"]["coordinator"]["compiled"]
    found = {path for pattern in said["modules"] for path in ROOT.glob(pattern)}
    left = {ROOT / name for name in said["interpreted"]}
    return sorted(str(path.relative_to(ROOT)) for path in found - left)


def extensions() -> list[object]:
    if os.environ.get("COORDINATOR_COMPILED") != "1":
        return []
    from mypyc.build import mypycify

    return list(
        mypycify(
            ["--config-file", "pyproject.toml", *compiled_modules()],
            opt_level=os.environ.get("COORDINATOR_COMPILED_LEVEL", "3"),
            group_name="coordinator",
        )
    )


setup(ext_modules=extensions())
