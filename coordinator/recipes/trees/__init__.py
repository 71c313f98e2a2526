"""The parts of a tree cache: what it holds, and how it follows the cluster."""
