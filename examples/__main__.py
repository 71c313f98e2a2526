"""``python -m examples``: which stories there are."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import examples

for module in pkgutil.iter_modules(examples.__path__):
    told = import_module(f"examples.{module.name}") if module.name != "__main__" else None
    if hasattr(told, "story"):
        about = (told.__doc__ or "").partition("\n")[0]
        print(f"{'python -m examples.' + module.name:<54} {about}")
