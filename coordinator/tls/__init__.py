"""TLS: who may be at the other end of a connection, and what travels unread between the two.

::

    names      what a certificate says its owner is
    files      certificates, keys and CAs, read, checked, and read again when they change
    pipe       bytes in, bytes out: one connection, without a socket
    transport  the same on a socket of an event loop, and the turns of handshakes
    wording    why there is no connection, and what to do
    issuing    certificates for a cluster (extra ``certs``)
"""
