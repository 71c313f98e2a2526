"""The parts that recipes of every kind are made from: names, znodes, waits for changes."""
