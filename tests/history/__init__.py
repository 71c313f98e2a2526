"""A small tool of its own: are recorded histories of clients what a correct service could answer?

Reading order: ``operations`` (what is recorded), ``checker`` (the search), ``register`` and
``models`` (what a correct service is), ``explanation`` (why not), ``properties`` (checks of event
logs that need no search). ``python -m tests.history FILE.jsonl`` judges a file.

It imports nothing of the product, so a mistake there is not repeated here.
"""
