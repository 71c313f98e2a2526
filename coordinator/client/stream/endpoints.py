"""The address of an endpoint, and why it cannot be reached."""

from __future__ import annotations

import errno
import os
import ssl
from urllib.parse import urlsplit

from coordinator.client.securing import reason_of
from coordinator.client.stream.patience import WELCOME_MS_MAX
from coordinator.errors import UnavailableError

_PORTS = {"http": 80, "https": 443}


def address_of(endpoint: str) -> tuple[str, int]:
    """Return host and port of the URL of a member."""
    parts = urlsplit(endpoint)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)


def not_welcomed(endpoint: str) -> UnavailableError:
    """Return the error of a member that has spoken the stream before and says nothing now."""
    return UnavailableError(
        f"{endpoint}: it took the connection, and said nothing for {WELCOME_MS_MAX} ms",
        endpoint=endpoint,
    )


def why_not(error: OSError | ValueError) -> str:
    """Return what the system says, without the address; of TLS, what to do."""
    number = error.errno if isinstance(error, OSError) else None
    is_tls = isinstance(error, ssl.SSLError)
    if not is_tls and number is not None and number in errno.errorcode:
        return os.strerror(number)
    return reason_of(error)
