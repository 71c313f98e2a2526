"""Writes: proposed at any member, ordered by the leader, never applied twice."""
