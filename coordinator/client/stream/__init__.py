"""The stream's client: many requests at once on one connection; docs/stream.md is the protocol.

``conversation`` is what both sides say on one connection, without I/O; ``connection`` puts it on a
socket of an event loop, ``transport`` chooses connections and goes on with HTTP where a member has
no stream.
"""
