"""The names of a certificate's owner: URIs among its alternative names (subjectAltName).

A member's is ``coordinator://CLUSTER/MEMBER_ID``, a client's ``coordinator://CLUSTER/clients/NAME``
or any other URI that an operator gives it (``spiffe://...``). The ids of members have no slash, so
no client's name can be taken for a member's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

URIS_MAX = 8
"""The names of one certificate; further ones count for nothing."""
URI_BYTES_MAX = 512


def member_uri(cluster: str, member_id: str) -> str:
    """Return the name of a member."""
    return f"coordinator://{quote(cluster, safe='')}/{quote(member_id, safe='')}"


def client_uri(cluster: str, name: str) -> str:
    """Return the name of a client."""
    return f"coordinator://{quote(cluster, safe='')}/clients/{quote(name, safe='')}"


def uris_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the URIs among the names of a certificate that was verified; () if there is none."""
    names = (certificate or {}).get("subjectAltName", ())
    uris = [value for kind, value in names if kind == "URI" and len(value) <= URI_BYTES_MAX]
    return tuple(uris[:URIS_MAX])
