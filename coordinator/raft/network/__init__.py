"""How members reach each other: connections, handshake, sealed frames, messages, requests."""
