"""The hold of a capture. Not compiled, since it is referred to weakly."""

from __future__ import annotations


class CaptureHold:
    """Keeps a capture unchanged as long as it is referenced."""

    __slots__ = ("__weakref__",)
