"""The parts of an election: its candidates, their weights, hand-over, and resuming."""
