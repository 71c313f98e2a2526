"""ROOM 2: in which order, durably. Moves bytes and does not know what they mean."""
