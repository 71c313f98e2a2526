"""ROOM 4: the doors, ``http`` and ``stream``, and the ``routes`` behind both."""
