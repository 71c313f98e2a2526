"""Between what the service says of a grant and its shape on the wire; no decisions."""

from __future__ import annotations

import coordinator.service.locks.service as service
from coordinator.wire.messages import acquire


def grant_shape(grant: service.Grant) -> acquire.Grant:
    """Return a grant as the reply of an acquire says it."""
    return acquire.Grant(
        grant_id=grant.grant_id,
        lock=grant.lock,
        fencing_token=grant.fencing_token,
        session_id=grant.session_id,
        path=grant.path,
        zxid=grant.zxid,
        kind=grant.kind,
        max_hold_ms=grant.max_hold_ms,
        previous=grant.previous,
        grants=tuple([grant_shape(each) for each in grant.grants]),
    )
