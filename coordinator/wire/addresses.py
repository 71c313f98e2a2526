"""The address of a client: as bounds by address count it, and whether it is this machine."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def network_of(address: str) -> str:
    """Return whose address this is, as far as one can tell: of IPv6 one host has a whole /64."""
    if ":" not in address:
        return address
    plain = IPv6Address(address.partition("%")[0].removesuffix("/64"))
    if plain.ipv4_mapped is not None:
        return str(plain.ipv4_mapped)
    return str(IPv6Address(int(plain) >> 64 << 64)) + "/64"


def is_local(address: str, reached: str | None = None) -> bool:
    """Whether a client with this address is on this machine; one without is in this process.

    Who has the address that it reached (``reached``) is on this machine, too: from another one the
    answer would never come back."""
    if not address or address == reached:
        return True
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (found if mapped is None else mapped).is_loopback
