"""ROOM 1: what is true. Pure, deterministic, synchronous; see ``machine`` for the laws."""
