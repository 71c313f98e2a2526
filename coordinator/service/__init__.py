"""ROOM 3: one living member. Who asks, in what order, who is still alive, who asked to be told."""
