"""The address of a client, as bounds by address count it."""

from __future__ import annotations

from ipaddress import IPv6Address


def network_of(address: str) -> str:
    """Return whose address this is, as far as one can tell: of IPv6 one host has a whole /64."""
    if ":" not in address:
        return address
    plain = IPv6Address(address.partition("%")[0].removesuffix("/64"))
    if plain.ipv4_mapped is not None:
        return str(plain.ipv4_mapped)
    return str(IPv6Address(int(plain) >> 64 << 64)) + "/64"
