"""Between what the service says of locks and grants and their shapes on the wire; no decisions."""

from __future__ import annotations

from typing import Any

import coordinator.service.locks.history as history
import coordinator.service.locks.service as service
import coordinator.service.locks.views as views
from coordinator.service.locks.denials import Denied
from coordinator.wire.encoding import Encoding
from coordinator.wire.messages import acquire
from coordinator.wire.messages import history as history_shapes
from coordinator.wire.messages import locks as shapes


def grant_shape(grant: service.Grant) -> acquire.Grant:
    """Return a grant as the reply of an acquire says it."""
    previous = grant.previous
    return acquire.Grant(
        grant_id=grant.grant_id,
        lock=grant.lock,
        fencing_token=grant.fencing_token,
        session_id=grant.session_id,
        path=grant.path,
        zxid=grant.zxid,
        kind=grant.kind,
        max_hold_ms=grant.max_hold_ms,
        previous=None
        if previous is None
        else history_shapes.Previous(
            previous.grant_id,
            previous.fencing_token,
            previous.how,
            previous.note,
            previous.ended_zxid,
        ),
        grants=tuple([grant_shape(each) for each in grant.grants]),
    )


def lock_shape(view: views.LockView, token: int | None) -> shapes.LockView:
    """Return a lock as it is looked at, without the lists of who holds and who waits.

    ``token`` is the one that was asked about, if any."""
    holder = view.holder
    tokens = [each.fencing_token for each in view.holders]
    closed, waits, holds = view.closed, view.waits, view.holds
    return shapes.LockView(
        lock=view.lock,
        holder=None if holder is None else contender_shape(holder),
        queue=(),
        zxid=view.zxid,
        is_current=None if token is None else token in tokens,
        size=view.size,
        closed=None if closed is None else shapes.Closed(closed.delay_ms, closed.remaining_ms),
        waits=None if waits is None else _spread(waits),
        holds=None if holds is None else _spread(holds),
        denied=None if view.denied is None else denied_shape(view.denied),
    )


def denied_shape(denied: Denied) -> shapes.Denied:
    """Return who was denied a lock."""
    return shapes.Denied(denied.tries, denied.left, denied.since_ms)


def _spread(spread: views.Spread) -> shapes.Spread:
    return shapes.Spread(spread.count, spread.p50_ms, spread.p95_ms, spread.p99_ms)


def contender_body(view: views.ContenderView, encoding: Encoding) -> dict[str, Any]:
    """Return one place in a queue as the body says it."""
    return contender_shape(view).to_body(encoding)


def summary_body(summary: views.LockSummary, encoding: Encoding) -> dict[str, Any]:
    """Return one line of the list of locks as the body says it."""
    return summary_shape(summary).to_body(encoding)


def record_body(record: history.GrantRecord, encoding: Encoding) -> dict[str, Any]:
    """Return one grant of the history as the body says it."""
    return record_shape(record).to_body(encoding)


def contender_shape(view: views.ContenderView) -> shapes.Contender:
    """Return one place in a queue."""
    return shapes.Contender(
        grant_id=view.grant_id,
        fencing_token=view.fencing_token,
        session_id=view.session_id,
        path=view.path,
        position=view.position,
        since_ms=view.since_ms,
        label=view.label,
        host=view.host,
        pid=view.pid,
        trace_id=view.trace_id,
        is_holder=view.is_holder,
        kind=view.kind,
        owner=view.owner,
        granted_ms=view.granted_ms,
        lock_delay_ms=view.lock_delay_ms,
        max_hold_ms=view.max_hold_ms,
        when_unsure=view.when_unsure,
        purpose=view.purpose,
        guard=view.guard,
        note=view.note,
        lease_ms=view.lease_ms,
        safe_ms=view.safe_ms,
    )


def summary_shape(summary: views.LockSummary) -> shapes.LockSummary:
    """Return one lock of a list."""
    return shapes.LockSummary(
        lock=summary.lock,
        holder=None if summary.holder is None else contender_shape(summary.holder),
        queue_length=summary.queue_length,
        held_ms=summary.held_ms,
        holder_count=summary.holder_count,
        denied=denied_shape(summary.denied),
    )


def record_shape(record: history.GrantRecord) -> history_shapes.GrantRecord:
    """Return one grant of the history."""
    info = record.info
    return history_shapes.GrantRecord(
        lock=record.name,
        grant_id=record.grant_id,
        path=record.path,
        fencing_token=record.fencing_token,
        kind=record.kind,
        session_id=record.session_id,
        entered_zxid=record.entered_zxid,
        entered_ms=record.entered_ms,
        granted_zxid=record.granted_zxid,
        granted_ms=record.granted_ms,
        owner=record.owner,
        label=info.label,
        host=info.host,
        pid=info.pid,
        trace_id=info.trace_id,
        when_unsure=info.when_unsure,
        purpose=info.purpose,
        guard=info.guard,
        ended_zxid=record.ended_zxid,
        ended_ms=record.ended_ms,
        how=record.how,
        by=record.by,
        reason=record.reason,
        silent_ms=record.silent_ms,
        term=record.term,
        next_token=record.next_token,
        note=record.note,
        group=record.group,
        is_election=record.is_election,
    )
