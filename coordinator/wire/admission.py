"""The admission of connections: how many, in all and from one address, whatever they speak.

1. Over the limit: refused. But for a few that are *spare*: they may ask once each how the member
   is, and end sessions (``ASKED_OF_A_FULL_MEMBER``); an operator may ask for anything. So a crowd
   takes neither its health nor its operator away. Addresses that have all their places share spare
   connections of their own, so that they take none of the others'.
2. A connection has its place from when it was accepted until it was lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from coordinator.node.config import HttpConfig
from coordinator.wire.addresses import network_of

SPARE_MAX = 64
"""Connections beyond ``connections_max``, for a second each; as many more for addresses that have
all their places."""
_SPARE_PER_ADDRESS_MAX = 8
ASKED_OF_A_FULL_MEMBER = frozenset(
    {
        ("GET", "/health/live"), ("HEAD", "/health/live"),
        ("GET", "/health/ready"), ("HEAD", "/health/ready"),
        ("GET", "/metrics"), ("GET", "/v1/status"), ("GET", "/v1/sessions"),
        ("DELETE", "/v1/sessions/{session_id}"),
    }
)  # fmt: skip
"""What a spare connection may ask for, by method and template."""


@dataclass(slots=True, eq=False)
class Place:
    """The place of one connection; ``full`` says why it is one too many, of a spare one."""

    address: str
    full: str = ""
    is_of_crowd: bool = False
    """Whether it is one too many of its address, of a spare one."""
    is_local: bool = False
    """Whether its client is on this machine."""
    has_certificate: bool = False
    """Whether its client showed a certificate, which was verified."""
    certificate_names: tuple[str, ...] = ()
    """The URIs of that certificate; () if it showed none, or one without."""
    network: str = ""
    """The address as bounds count it (``network_of``)."""
    is_known: bool = False
    """Whether a credential was shown on it, by the stream, and found to be good."""
    proved: object = None
    """What it has proved last, to the gate of its door: it need not be proved with each request."""

    def __post_init__(self) -> None:
        self.network = network_of(self.address)


@dataclass(slots=True)
class Admission:
    """Counts the connections: in all, and by address."""

    config: HttpConfig
    by_address: Counter[str] = field(default_factory=Counter)
    total: int = 0
    lingering: int = 0
    spare: set[Place] = field(default_factory=set)

    def enter(self, address: str) -> Place | str:
        """Return a place for one more connection from ``address``, or why there is none."""
        reason = self._refusal(address)
        if reason is None:
            self.total += 1
            self.by_address[address] += 1
            return Place(address)
        if not self.has_spare(address):
            return reason
        place = Place(address, reason, self._is_crowd(address))
        self.spare.add(place)
        return place

    def leave(self, place: Place) -> None:
        """Give up a place, once."""
        if place.full:
            self.spare.discard(place)
            return
        self.total -= 1
        self.by_address[place.address] -= 1
        if not self.by_address[place.address]:
            del self.by_address[place.address]

    def has_spare(self, address: str) -> bool:
        """Whether one more connection from ``address`` may be let in to ask for a little."""
        is_of_crowd = self._is_crowd(address)
        alike = [each.address for each in self.spare if each.is_of_crowd == is_of_crowd]
        return len(alike) < SPARE_MAX and alike.count(address) < _SPARE_PER_ADDRESS_MAX

    def _is_crowd(self, address: str) -> bool:
        return self.by_address[address] >= self.config.connections_per_address_max

    def _refusal(self, address: str) -> str | None:
        if self.total >= self.config.connections_max:
            return (
                f"expected at most {self.config.connections_max} connections to one member "
                "(http.connections_max), found as many; ask another member, or later"
            )
        if self._is_crowd(address):
            maximum = self.config.connections_per_address_max
            return (
                f"expected at most {maximum} connections from one address "
                "(http.connections_per_address_max), found as many; close some, or let programs "
                "share a client"
            )
        return None
