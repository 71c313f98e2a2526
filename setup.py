"""The compiled build: ``COORDINATOR_COMPILED=1`` asks for it; without that nothing is compiled.

``pyproject.toml`` says which modules (``[tool.coordinator.compiled]``). They stay readable and are
installed beside what is compiled of them, so tracebacks show their lines. Needs a C compiler and
mypy, which brings mypyc.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
IS_COMPILED = os.environ.get("COORDINATOR_COMPILED") == "1"
SAID = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements() -> list[str]:
    """Return what the build needs: mypy, and the types of what the modules import."""
    project = SAID["project"]
    development = project["optional-dependencies"]["dev"]
    return [*project["dependencies"], *(each for each in development if each.startswith("mypy"))]


def compiled_modules() -> list[str]:
    """Return the files that are compiled, in order."""
    said = SAID["tool"]["coordinator"]["compiled"]
    found = {path for pattern in said["modules"] for path in ROOT.glob(pattern)}
    left = {ROOT / name for name in said["interpreted"]}
    return sorted(str(path.relative_to(ROOT)) for path in found - left)


def extensions() -> list[object]:
    from mypyc.build import mypycify

    return list(
        mypycify(
            ["--config-file", "pyproject.toml", *compiled_modules()],
            opt_level=os.environ.get("COORDINATOR_COMPILED_LEVEL", "3"),
            group_name="coordinator",
        )
    )


if not IS_COMPILED:
    setup()
elif {"build_ext", "bdist_wheel"} & set(sys.argv):
    setup(ext_modules=extensions())
else:  # who builds a wheel asks first what that needs
    setup(setup_requires=requirements())
