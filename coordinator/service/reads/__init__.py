"""Reads of the applied state, as fresh as they are asked for."""
