"""The network between members: connections, handshake, sealed frames, messages, requests."""
