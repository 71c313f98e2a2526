"""Streams of lines that survive their members: the changes of watched znodes, none missed."""
