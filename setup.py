"""The compiled build: ``COORDINATOR_COMPILED=1`` asks for it; without that nothing is compiled.

``pyproject.toml`` says which modules (``[tool.coordinator.compiled]``). They stay readable and are
installed beside what is compiled of them, so tracebacks show their lines. Needs a C compiler and
mypy, which brings mypyc.

Each module becomes a C file of its own, and as many compilers run as there are processors. One
file for all of them took the compiler more than four times as long.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

try:
    import tomllib
except ImportError:  # pip runs this before it looks at requires-python
    found = ".".join(map(str, sys.version_info[:3]))
    raise SystemExit(
        f"coordinator needs Python 3.11 or newer, found {found} ({sys.executable}); "
        "install it with a newer one: python3.12 -m pip install ..."
    ) from None

ROOT = Path(__file__).resolve().parent
IS_COMPILED = os.environ.get("COORDINATOR_COMPILED") == "1"
ONLY = os.environ.get("COORDINATOR_COMPILED_ONLY", "")
"""With what the paths of the modules begin that are compiled: a test compiles a part of them."""
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
    names = sorted(str(path.relative_to(ROOT)) for path in found - left)
    return [name for name in names if name.startswith(ONLY)]


def extensions() -> list[object]:
    """Return what is built: a library of all modules, and for each module what loads it."""
    from mypyc.build import mypycify

    made = mypycify(
        ["--config-file", "pyproject.toml", *compiled_modules()],
        opt_level=os.environ.get("COORDINATOR_COMPILED_LEVEL", "2"),
        debug_level="0",
        group_name="coordinator",
        multi_file=True,
    )
    if os.name == "posix":  # calls from file to file need no table then
        for each in made:
            each.extra_compile_args.append("-fvisibility=hidden")
    return list(made)


class BuildWhatIsHere(build_py):
    """Begins with nothing: what an older build left would get into the wheel."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildSideBySide(build_ext):
    """Compiles as many files at once as there are processors, or as ``--parallel`` says."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = int(self.parallel or os.cpu_count() or 1)

    def build_extensions(self) -> None:
        compile_in_turn = self.compiler.compile

        def compile_files(sources: Sequence[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(self.parallel) as threads:
                made = threads.map(lambda each: compile_in_turn([each], **options), sources)
                return [name for names in made for name in names]

        self.compiler.compile = compile_files
        super().build_extensions()


if not IS_COMPILED:
    setup(cmdclass={"build_py": BuildWhatIsHere})
elif {"build_ext", "bdist_wheel"} & set(sys.argv):
    commands = {"build_py": BuildWhatIsHere, "build_ext": BuildSideBySide}
    setup(ext_modules=extensions(), cmdclass=commands)
else:  # who builds a wheel asks first what that needs
    setup(setup_requires=requirements())
