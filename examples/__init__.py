"""One runnable story for each way in which locks go wrong, and what to do about it.

    python -m examples                            lists them
    python -m examples.s105_one_seat              tells one; --pace 0.2 tells it five times as fast

Each brings its own cluster of three members (``coordinator.testing``), prints what happens in plain
words and exits with 0. Most tell it twice: without the token or the recipe, and with it.
"""
