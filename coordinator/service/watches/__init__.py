"""Watches: the changes that each stream gets, and those that are kept for it."""
