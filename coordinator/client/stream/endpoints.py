"""The reasons why an endpoint cannot be reached."""

from __future__ import annotations

import errno
import os
import ssl

from coordinator.client.calling.securing import reason_of
from coordinator.client.stream.patience import WELCOME_MS_MAX
from coordinator.errors import UnavailableError


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
