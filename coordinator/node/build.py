"""The build that runs: Python as it is, or with modules compiled from the same source.

Both give the same results; the compiled one is faster. What programs import is not compiled, so it
is seen, subclassed and mocked alike; inner objects cannot be patched where they are. ``make
compiled`` and the compiled wheel make it (``setup.py``). In a checkout the source may have changed
since: then the older one runs, and this says so.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from importlib.util import find_spec
from math import inf
from pathlib import Path

_COMPILED = "coordinator.state.machine"
"""A module of every compiled build."""
_PACKAGE = Path(__file__).resolve().parent.parent


def is_compiled() -> bool:
    """Whether compiled modules run."""
    spec = find_spec(_COMPILED)
    return spec is not None and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader)


def changed_since() -> list[str]:
    """Return the files of a checkout that were changed since they were compiled."""
    if not (_PACKAGE.parent / "pyproject.toml").exists():
        return []  # installed: what was compiled came with its source
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    changed: list[str] = []
    for folder, _, _ in os.walk(_PACKAGE):
        with os.scandir(folder) as found:
            written = {each.name: each.stat().st_mtime for each in found if each.is_file()}
        for name in [each for each in written if each.endswith(suffix)]:
            source = f"{name.removesuffix(suffix)}.py"
            if written.get(source, inf) > written[name]:
                changed.append(str(Path(folder, source).relative_to(_PACKAGE.parent)))
    return sorted(changed)


def described() -> str:
    """Say which build this is, for people."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if not is_compiled():
        return f"{python}, not compiled"
    changed = changed_since()
    if not changed:
        return f"{python}, compiled"
    return f"{python}, compiled before {changed[0]} was changed: run `make compiled` again"
