"""The client's part of a lock: its place in a queue, what was granted, how it is lost."""
