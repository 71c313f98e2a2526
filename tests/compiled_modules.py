"""The modules that are compiled where a compiler is, as ``pyproject.toml`` names them."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def compiled_sources() -> list[Path]:
    """Return their files, in order."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coordinator"][
        "compiled"
    ]
    found = {path for pattern in settings["modules"] for path in ROOT.glob(pattern)}
    return sorted(found - {ROOT / name for name in settings["interpreted"]})
