"""Between the shapes on the wire and the values of the state: field by field, no decisions."""

from __future__ import annotations

from typing import Any

import coordinator.state.commands as commands
import coordinator.state.events as events
import coordinator.state.outcomes as outcomes
from coordinator.wire.encoding import Encoding, data_fields
from coordinator.wire.messages import operations as shapes
from coordinator.wire.messages import watches
from coordinator.wire.messages.znodes import stat_body


def create_command(shape: shapes.Create) -> commands.Create:
    return commands.Create(
        path=shape.path,
        data=shape.data,
        mode=commands.CreateMode(shape.mode),
        session_id=shape.session_id,
        ttl_ms=shape.ttl_ms,
        parents=None if shape.parents is None else commands.CreateMode(shape.parents),
    )


def check_command(shape: shapes.Check) -> commands.Check:
    return commands.Check(
        path=shape.path,
        exists=shape.exists,
        expected_version=shape.expected_version,
        expected_czxid=shape.expected_czxid,
        has_children=shape.has_children,
        expected_owner=shape.expected_owner,
    )


def znode_command(shape: shapes.Operation) -> commands.ZnodeOperation:
    """Return the operation of the state machine that ``shape`` asks for."""
    match shape:
        case shapes.Create():
            return create_command(shape)
        case shapes.SetData():
            return commands.SetData(shape.path, shape.data, shape.expected_version)
        case shapes.Delete():
            return commands.Delete(
                path=shape.path,
                expected_version=shape.expected_version,
                expected_czxid=shape.expected_czxid,
                is_recursive=shape.is_recursive,
            )
        case shapes.Check():
            return check_command(shape)
        case shapes.Read():
            return commands.Read(shape.path)


def multi_command(shape: shapes.Multi | shapes.Guarded) -> commands.Multi | commands.Guarded:
    """Return the command that the body of POST /v1/multi asks for."""
    if isinstance(shape, shapes.Multi):
        return commands.Multi(tuple(znode_command(each) for each in shape.operations))
    return commands.Guarded(
        conditions=tuple(check_command(each) for each in shape.conditions),
        then=tuple(znode_command(each) for each in shape.then),
        otherwise=tuple(znode_command(each) for each in shape.otherwise),
    )


def result_body(result: outcomes.ZnodeResult, encoding: Encoding) -> dict[str, Any]:
    """Return what one operation of a multi came to, as a body."""
    match result:
        case outcomes.Created(path, stat):
            return {"op": "create", "path": path, "stat": stat_body(stat)}
        case outcomes.DataSet(path, stat):
            return {"op": "set", "path": path, "stat": stat_body(stat)}
        case outcomes.Deleted(path, deleted_count):
            return {"op": "delete", "path": path, "deleted_count": deleted_count}
        case outcomes.Checked(path):
            return {"op": "check", "path": path}
        case outcomes.ReadDone(path, data, found_stat):
            if found_stat is None:
                return {"op": "read", "path": path, "stat": None}
            body = {"op": "read", "path": path, "stat": stat_body(found_stat)}
            body.update(data_fields(data, encoding))
            return body


def written_body(result: Any) -> dict[str, Any]:
    """Return the reply of a create or a set."""
    return {"path": result.path, "stat": stat_body(result.stat)}


def change_message(change: events.Change) -> watches.Change:
    """Return a change as a line of a watch."""
    return watches.Change(
        zxid=change.zxid,
        events=tuple(
            watches.Event(
                type=each.type.value,
                path=each.path,
                version=each.version,
                czxid=each.czxid,
                ephemeral_owner=each.ephemeral_owner,
            )
            for each in change.events
        ),
    )
