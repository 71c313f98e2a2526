"""One runnable story for each way in which locks go wrong, and what to do about it.

    python -m examples                     lists them, in an order to read them in
    python -m examples one_seat            runs one; --pace 0.2 runs it five times as fast
    python -m examples all                 runs all of them, one after the other

Each brings its own cluster of three members (``coordinator.testing``), prints what happens in plain
words and exits with 0. Most tell it twice: without the token or the recipe, and with it.
"""
