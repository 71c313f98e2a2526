"""ROOM 4: the doors. ``messages`` is what is said, ``http`` is where; neither decides anything."""
