"""PySyncObj, loaded without cryptography: only its own transports use that, and none of them runs.

To load it takes longer than all of PySyncObj, and a member that has no TLS needs it for nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_UNUSED = "cryptography.fernet"
"""PySyncObj goes on without, if this is not there."""


def _loaded() -> Any:
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    is_hidden = _UNUSED not in modules
    if is_hidden:
        modules[_UNUSED] = None  # so Python says that there is no such module
    try:
        return import_module("pysyncobj.syncobj")
    finally:
        if is_hidden:
            del modules[_UNUSED]


library = _loaded()
