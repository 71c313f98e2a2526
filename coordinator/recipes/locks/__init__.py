"""The parts of a lock: options, contender, hold, grant, and what runs under them."""
