"""ROOM 3: one living member. Who asks, in what order, who is alive, who must be notified."""
