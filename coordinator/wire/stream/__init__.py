"""The stream: many requests at once on one connection, in binary; docs/stream.md says its bytes.

``frames`` turns bytes into frames and back, for both sides, and does no I/O.
"""
