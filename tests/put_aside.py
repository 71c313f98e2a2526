"""What the collector of a test process does not look at: the tests themselves, and all they share.

A test that puts its own objects aside, too (``gc.freeze``), sets ``is_more``: after its file
everything is looked at once, and put aside again. Only ``gc.unfreeze`` would leave the fifteen
thousand tests to each collection that comes later, and each would take a second.
"""

from __future__ import annotations

import gc

is_more = False


def put_aside() -> None:
    """Collect everything that is garbage; look at the rest no more."""
    global is_more
    is_more = False
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def after_a_file() -> None:
    """Look at what a test of the file has put aside."""
    if is_more:
        put_aside()
