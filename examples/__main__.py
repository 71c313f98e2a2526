"""``python -m examples``: which stories there are."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import examples

for module in pkgutil.iter_modules(examples.__path__):
    if module.name.startswith("s"):
        about = (import_module(f"examples.{module.name}").__doc__ or "").partition("\n")[0]
        if about.startswith("S1"):
            print(f"{'python -m examples.' + module.name:<52} {about}")
