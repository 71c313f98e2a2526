"""/openapi.json is true: every route is in it, and what comes back is what it says.

``DRIVEN`` sends one request or more to every operation of the document. Requests are checked
against the document before they are sent, responses after; both as if no other field were allowed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from coordinator.clock import SystemClock
from coordinator.errors import REGISTRY
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.openapi import openapi_document
from coordinator.wire.http.openapi_operations import OPERATIONS
from coordinator.wire.http.openapi_schemas import SCHEMAS
from coordinator.wire.http.served import served
from tests.wire.serving import NDJSON, Api

DOCUMENT = openapi_document("test")
SSE = {"Accept": "text/event-stream"}


def closed(schema: Any) -> Any:
    """Return ``schema`` with every object refusing what it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {name: closed(each) for name, each in schema.items()}
    if copied.get("type") == "object" and "properties" in copied:
        copied.setdefault("additionalProperties", False)
    return copied


CLOSED = closed(copy.deepcopy(DOCUMENT["components"]))


def refuse_if_not(schema: Any, value: Any) -> None:
    Draft202012Validator({**closed(schema), "components": CLOSED}).validate(value)


@dataclass(frozen=True, slots=True)
class Step:
    """One request; ``{name}`` in the path or the body is filled from what came back before.

    ``keeps`` maps a name to where it is in the reply."""

    operation_id: str
    path: str
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    keeps: dict[str, tuple[str, ...]] = field(default_factory=dict)


SESSION = {"session": ("session_id",)}
GRANT = {"grant": ("grant", "grant_id"), "token": ("grant", "fencing_token")}
OF_1 = {"fencing_token": 1}
SLOW = {"session_id": "{session}", "max_hold_ms": 60_000, "lock_delay_ms": 1, "guard": "pg"}
SLOT = {"session_id": "{session}", "kind": "slot"}
NUMBERED = {"Coordinator-Client-Id": "c", "Coordinator-Request-Number": "1"}

DRIVEN = [
    Step("open_session", "/v1/sessions", {"timeout_ms": 60_000, "label": "me"}, 201, keeps=SESSION),
    Step("open_session", "/v1/sessions", {"timeout_ms": 1}, 400),
    Step("create_znode", "/v1/tree/a", {"data": "x", "mode": "persistent"}, 201),
    Step("create_znode", "/v1/tree/a", {"data": None, "session_id": None}, 409),
    Step("create_znode", "/v1/tree/a/b-", {"mode": "persistent_sequential"}, 201),
    Step("create_znode", "/v1/tree/e", {"mode": "ephemeral", "session_id": "{session}"}, 201),
    Step("create_znode", "/v1/tree/f", {"mode": "ephemeral", "session_id": "00"}, 410),
    Step("create_znode", "/v1/tree/t", {"mode": "ttl", "ttl_ms": 60_000}, 201),
    Step("create_znode", "/v1/tree/bin", {"data_base64": "AP8=", "parents": "container"}, 201),
    Step("read_root", "/v1/tree"),
    Step("read_root", "/v1/tree?children&stat"),
    Step("read_znode", "/v1/tree/a"),
    Step("read_znode", "/v1/tree/bin?stale"),
    Step("read_znode", "/v1/tree/a?children&limit=10"),
    Step("read_znode", "/v1/tree/none", status=404),
    Step("read_znode", "/v1/tree/a", headers={"If-None-Match": '"0-2"'}, status=304),
    Step("head_znode", "/v1/tree/a"),
    Step("set_data", "/v1/tree/a", {"data": "y", "expected_version": 0}),
    Step("set_data", "/v1/tree/a", {"data": "y", "expected_version": 0}, 412),
    Step("set_data", "/v1/tree/new?create", {"data": "y"}, 201),
    Step("delete_znode", "/v1/tree/a", status=409),
    Step("delete_znode", "/v1/tree/a?recursive"),
    Step(
        "multi",
        "/v1/multi",
        {
            "operations": [
                {"op": "create", "path": "/m", "data": "1"},
                {"op": "set", "path": "/m", "data": "2"},
                {"op": "check", "path": "/m", "exists": True},
                {"op": "read", "path": "/m"},
                {"op": "read", "path": "/none"},
                {"op": "delete", "path": "/m"},
            ]
        },
    ),
    Step(
        "multi",
        "/v1/multi",
        {
            "conditions": [{"path": "/g", "exists": False}],
            "then": [{"op": "create", "path": "/g"}],
            "otherwise": [],
        },
    ),
    Step("multi", "/v1/multi", {"operations": [{"op": "check", "path": "/no"}]}, 404),
    Step("watch", "/v1/watch?path=/&kind=subtree&from_zxid=0&one_shot", headers=NDJSON),
    Step("watch", "/v1/watch?path=/&kind=subtree&from_zxid=0&one_shot", headers=SSE),
    Step("watch", "/v1/watch", status=400),
    Step(
        "watch_many",
        "/v1/watch",
        {"watches": [{"path": "/", "kind": "children"}], "from_zxid": 1, "one_shot": True},
        headers=NDJSON,
    ),
    Step("list_sessions", "/v1/sessions"),
    Step("get_session", "/v1/sessions/{session}"),
    Step("get_session", "/v1/sessions/none", status=410),
    Step("heartbeat", "/v1/sessions/{session}/heartbeat"),
    Step("heartbeats", "/v1/sessions/heartbeats", {"session_ids": ["{session}", "never"]}),
    Step("acquire_lock", "/v1/locks/l", {"session_id": "{session}", "label": "me"}, keeps=GRANT),
    Step("acquire_lock", "/v1/locks/l", {"session_id": "{session}", "timeout_ms": 0}, 409),
    Step("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "timeout_ms": 20}, headers=NDJSON),
    Step("acquire_lock", "/v1/locks/k", {"lease_ms": 5_000}, headers=NDJSON),
    Step("get_lock", "/v1/locks/l?fencing_token={token}"),
    Step("get_lock", "/v1/locks/nobody"),
    Step("list_locks", "/v1/locks"),
    Step("set_data", "/v1/tree/new?if_held=l:{token}", {"data": "z"}),
    Step("set_data", "/v1/tree/new", {"data": "z", "if_held": [{"lock": "l", **OF_1}]}, 410),
    Step("delete_znode", "/v1/tree/new?if_elected=l:{token}", status=410),
    Step("note_lock", "/v1/locks/l/grants/{grant}/note", {"note": "page 7"}),
    Step("note_lock", "/v1/locks/l/grants/7-7/note", {"note_base64": "AP8="}, 409),
    Step("extend_lock", "/v1/locks/l/grants/7-7/extend", {"to_ms": 500}, 409),
    Step("downgrade_lock", "/v1/locks/l/grants/{grant}/downgrade"),
    Step("downgrade_lock", "/v1/locks/l/grants/7-7/downgrade", {"if_held": None}, 409),
    Step("explain_lock", "/v1/locks/l/why"),
    Step("explain_lock", "/v1/locks/nobody/why"),
    Step("diagnose", "/v1/diagnosis"),
    Step("diagnose", "/v1/diagnosis?lock=l"),
    Step("get_grant", "/v1/grants/l/{grant}"),
    Step("get_grant", "/v1/grants/l/7-7", status=404),
    Step("release_lock", "/v1/locks/l/grants/{grant}"),
    Step("acquire_lock", "/v1/locks/l", SLOW, keeps=GRANT),
    Step("extend_lock", "/v1/locks/l/grants/{grant}/extend", {"by_ms": 500}),
    Step("heartbeat", "/v1/sessions/{session}/heartbeat"),
    Step("get_lock", "/v1/locks/l"),
    Step("revoke_lock", "/v1/locks/l/revoke", {"by": "ann", "reason": "stuck"}),
    Step("revoke_lock", "/v1/locks/l/revoke", {"by": "ann", "reason": "stuck"}, 409),
    Step("heartbeat", "/v1/sessions/{session}/heartbeat"),
    Step("get_grant", "/v1/grants/l/{grant}"),
    Step("acquire_lock", "/v1/locks/s", {**SLOT, "size": 2}),
    Step("acquire_lock", "/v1/locks/s", SLOT),
    Step("resize_semaphore", "/v1/locks/s/size", {"size": 1}),
    Step("resize_semaphore", "/v1/locks/none/size", {"size": 1}, 404),
    Step("acquire_lock", "/v1/locks/s", {**SLOT, "timeout_ms": 20}, 409),
    Step("get_lock", "/v1/locks/s"),
    Step("acquire_locks", "/v1/locks", {"session_id": "{session}", "names": ["y", "x"]}),
    Step("acquire_locks", "/v1/locks", {"lease_ms": 5_000, "names": ["z", "z"]}, 400),
    Step("acquire_lock", "/v1/locks/x", {"session_id": "{session}", "timeout_ms": 0}, 409),
    Step("list_grants", "/v1/grants"),
    Step("list_grants", "/v1/grants?lock=l&how=forced&limit=1"),
    Step("list_grants", "/v1/grants?session_id={session}", headers=NDJSON),
    Step("list_grants", "/v1/grants?how=lost", status=400),
    Step("release_lock", "/v1/locks/l/grants/7-7", status=409),
    Step("acquire_lock", "/v1/locks/n", {"session_id": "{session}"}, headers=NUMBERED),
    Step("abandon_lock_attempt", "/v1/locks/n/attempts/c/1?floor_index=0"),
    Step(
        "campaign",
        "/v1/elections/e",
        {"session_id": "{session}", "value": "v"},
        keeps={"elected": ("grant", "grant_id")},
    ),
    Step("campaign", "/v1/elections/f", {"lease_ms": 5_000}, headers=NDJSON),
    Step("get_election", "/v1/elections/e"),
    Step("get_election", "/v1/elections/nobody"),
    Step("proclaim", "/v1/elections/e/grants/{elected}", {"value_base64": "AP8="}),
    Step("get_election", "/v1/elections/e"),
    Step("get_grant", "/v1/grants/e/{elected}?election"),
    Step("list_grants", "/v1/grants?election=e"),
    Step("resign", "/v1/elections/e/grants/{elected}"),
    Step("proclaim", "/v1/elections/e/grants/{elected}", {"value": "late"}, 409),
    Step("abandon_campaign", "/v1/elections/e/attempts/c/9"),
    Step("close_session", "/v1/sessions/{session}"),
    Step("get_limits", "/v1/limits"),
    Step("set_limits", "/v1/limits", {"limits": {"recursive_delete_max": 900}, "by": "ann"}),
    Step("set_limits", "/v1/limits", {"limits": {"no_such": 1}}, 400),
    Step("set_limits", "/v1/limits", {"limits": {"znodes_max": 9}, "expected_version": 0}, 412),
    Step("get_access", "/v1/access"),
    Step("get_caller", "/v1/access/me"),
    Step("put_role", "/v1/access/roles/r", {"rules": [{"prefix": "/r", "verbs": ["read"]}]}),
    Step("put_role", "/v1/access/roles/r", {"rules": [{"prefix": "r", "verbs": ["read"]}]}, 400),
    Step("put_role", "/v1/access/roles/spare", {}),
    Step("drop_role", "/v1/access/roles/spare"),
    Step("drop_role", "/v1/access/roles/spare", status=404),
    Step("put_identity", "/v1/access/identities/ann", {"roles": ["r"]}),
    Step("set_quota", "/v1/access/identities/ann/quota", {"quota": {"znodes": 9, "bytes": -1}}),
    Step("set_quota", "/v1/access/identities/ann/quota", {"quota": {"shoes": 9}}, 400),
    Step("get_quota", "/v1/access/identities/ann/quota"),
    Step("get_quota", "/v1/access/identities/nobody/quota", status=404),
    Step("list_quotas", "/v1/access/quotas"),
    Step("add_token", "/v1/access/identities/ann/tokens", {}, 201, keeps={"spare": ("token_id",)}),
    Step("add_token", "/v1/access/identities/ann/tokens", {"token_id": "without0"}, 400),
    Step("explain_access", "/v1/access/can?identity=ann&verb=read&resource=/r/a"),
    Step("explain_access", "/v1/access/can?identity=ann&verb=eat&resource=/r/a", status=400),
    Step("list_roles", "/v1/access/roles"),
    Step("list_identities", "/v1/access/identities"),
    Step("drop_token", "/v1/access/tokens/{spare}"),
    Step("drop_identity", "/v1/access/identities/ann"),
    Step("set_access", "/v1/access", {"is_on": False}),
    Step("status", "/v1/status"),
    Step("hand_over", "/v1/members/handover", {}, 503),
    Step("set_log_level", "/v1/members/log-level", {"level": "warning"}),
    Step("set_log_level", "/v1/members/log-level", {"level": "loud"}, 400),
    Step("set_log_level", "/v1/members/log-level", {"level": "info", "member_id": "9"}, 400),
    Step("backup", "/v1/backup", status=503),
    Step("upgrade_status", "/v1/upgrade"),
    Step("finish_upgrade", "/v1/upgrade/finish", {"by": "ops"}),
    Step("backup", "/v1/backup?id=0123456789abcdef&offset=1", status=410),
    Step("open_session", "/v1/sessions", {"timeout_ms": 60_000}, 201, keeps=SESSION),
    Step("acquire_lock", "/v1/locks/again", {"session_id": "{session}", "owner": "o"}),
    Step("acquire_lock", "/v1/locks/again", {"session_id": "{session}", "owner": "o"}, 409),
    Step("list_deadlocks", "/v1/deadlocks"),
    Step("list_members", "/v1/members"),
    Step("health_live", "/health/live"),
    Step("health_ready", "/health/ready"),
    Step("health_live_head", "/health/live"),
    Step("health_ready_head", "/health/ready"),
    Step("metrics", "/metrics"),
    Step("openapi", "/openapi.json"),
    Step("root", "/", status=404),
    Step("root_head", "/", status=404),
    Step("console", "/console"),
    Step("console_head", "/console"),
    Step("console_file", "/console/index.html"),
    Step("console_file_head", "/console/index.html"),
    Step("learn", "/learn"),
    Step("learn_head", "/learn"),
    Step("learn_file", "/learn/index.html"),
    Step("learn_file_head", "/learn/index.html"),
    Step("console_file", "/console/none.js", status=404),
    Step("init_access", "/v1/access/init", {"identity": "root"}, 201),
    Step("get_access", "/v1/access", status=401),
    Step("openapi", "/openapi.json", status=401),
]


def filled(value: Any, kept: dict[str, str]) -> Any:
    """Return ``value`` with every ``{name}`` replaced by what was kept."""
    text = json.dumps(value)
    for name, each in kept.items():
        text = text.replace(f"{{{name}}}", each)
    return json.loads(text)


def described(step: Step) -> dict[str, Any]:
    where = OPERATIONS[step.operation_id]
    operation: dict[str, Any] = DOCUMENT["paths"][where.template][where.method.lower()]
    return operation


def refuse_unexpected(step: Step, reply: Any) -> None:
    """Raise unless the document describes this reply."""
    responses = described(step)["responses"]
    assert str(reply.status) in responses, f"{step}: {reply.status} is not described: {reply.raw!r}"
    content = responses[str(reply.status)].get("content", {})
    if not reply.raw:
        return
    media_type = reply.headers["Content-Type"].partition(";")[0]
    assert media_type in content, f"{step}: {media_type} is not described"
    schema = content[media_type]["schema"]
    if media_type == "application/x-ndjson":
        for line in reply.raw.splitlines():
            refuse_if_not(schema, json.loads(line))
    elif media_type == "text/event-stream":
        for event in reply.raw.decode().split("\n\n")[:-1]:
            refuse_if_not(schema, json.loads(event.partition("data: ")[2]))
    elif media_type.endswith("json"):
        refuse_if_not(schema, reply.body)


async def test_every_operation_does_what_the_document_says(api: Api) -> None:
    """Each request fits its schema; each response, refusals included, fits its own."""
    kept: dict[str, str] = {}
    for step in DRIVEN:
        body = filled(step.body, kept)
        if body is not None and step.status < 400:
            schema = described(step)["requestBody"]["content"]["application/json"]["schema"]
            refuse_if_not(schema, body)
        method = OPERATIONS[step.operation_id].method

        path = filled(step.path, kept)
        reply = await api.call(method, path, body, headers=step.headers)

        assert reply.status == step.status, f"{step}: {reply}"
        refuse_unexpected(step, reply)
        for name, where in step.keeps.items():
            found = reply.body
            for key in where:
                found = found[key]
            kept[name] = str(found)


def takes_conditions(step: Step) -> bool:
    parameters = described(step).get("parameters", ())
    return any(each.get("name") == "if_held" for each in parameters)


async def test_every_write_whose_condition_does_not_hold_does_nothing(api: Api) -> None:
    """Each operation that takes conditions, as it would be done: before it is, without it.

    One that forgets to pass them on would be done, or refused for what it finds itself."""
    kept: dict[str, str] = {}
    refused = set()
    for step in DRIVEN:
        method = OPERATIONS[step.operation_id].method
        path, body = filled(step.path, kept), filled(step.body, kept)
        if takes_conditions(step) and step.status < 300 and step.operation_id not in refused:
            refused.add(step.operation_id)
            before = api.member.status().zxid
            conditional = f"{path}{'&' if '?' in path else '?'}if_held=gone:7"
            reply = await api.call(method, conditional, body)
            assert (reply.status, reply.code) == (410, "LockLost"), f"{step}: {reply}"
            assert api.member.status().zxid == before, f"{step} was done"
        reply = await api.call(method, path, body, headers=step.headers)
        assert reply.status == step.status, f"{step}: {reply}"
        for name, where in step.keeps.items():
            found = reply.body
            for key in where:
                found = found[key]
            kept[name] = str(found)

    assert refused == {step.operation_id for step in DRIVEN if takes_conditions(step)}


def test_every_operation_is_driven() -> None:
    """A route without a request above fails here."""
    assert {step.operation_id for step in DRIVEN} == set(OPERATIONS)


def test_the_document_and_the_router_name_the_same_routes() -> None:
    """No route is missing from the document, and none is invented."""
    clock = SystemClock()
    routes = served(Member(Config(), LoopbackEngine(), clock), HttpConfig(), clock).routes
    documented = {
        (method.upper(), template, operation["operationId"])
        for template, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
    }

    assert {(each.method, each.template, each.operation_id) for each in routes} == documented


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    """JSON Schema 2020-12, and every reference leads somewhere."""
    Draft202012Validator.check_schema(SCHEMAS[name])
    for reference in json.dumps(SCHEMAS[name]).split('"$ref": "')[1:]:
        assert reference.partition('"')[0].rpartition("/")[2] in SCHEMAS


REFUSED_BY_BOTH = [
    ("create_znode", "/v1/tree/a", {"unknown": 1}),
    ("create_znode", "/v1/tree/a", {"mode": "PERSISTENT"}),
    ("create_znode", "/v1/tree/a", {"ttl_ms": 0, "mode": "ttl"}),
    ("set_data", "/v1/tree/a", {}),
    ("set_data", "/v1/tree/a", {"data": 7}),
    ("set_data", "/v1/tree/a", {"data": "x", "expected_version": -2}),
    ("multi", "/v1/multi", {"operations": [{"op": "create"}]}),
    ("multi", "/v1/multi", {"operations": [{"op": "move", "path": "/a"}]}),
    ("multi", "/v1/multi", {"conditions": [{"path": "/a", "exists": 1}]}),
    ("open_session", "/v1/sessions", {"label": "x" * 201}),
    ("acquire_lock", "/v1/locks/l", {}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "timeout_ms": 3_600_001}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "on_disconnect": "wait"}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "value": "v"}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "kind": "mutex"}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "size": 10_001}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "if_held": {"lock": "a"}}),
    ("acquire_lock", "/v1/locks/l", {"lease_ms": 5_000, "names": ["a"]}),
    ("acquire_locks", "/v1/locks", {"lease_ms": 5_000, "names": []}),
    ("acquire_locks", "/v1/locks", {"lease_ms": 5_000, "names": ["a"], "kind": "shared"}),
    ("note_lock", "/v1/locks/l/grants/1-1/note", {}),
    ("extend_lock", "/v1/locks/l/grants/1-1/extend", {"by_ms": -1}),
    ("resize_semaphore", "/v1/locks/l/size", {"size": 0}),
    ("revoke_lock", "/v1/locks/l/revoke", {"by": "ann"}),
    ("downgrade_lock", "/v1/locks/l/grants/1-1/downgrade", {"to": "shared"}),
    ("set_limits", "/v1/limits", {"limits": {"znodes_max": "many"}}),
    ("set_limits", "/v1/limits", {"limits": {}}),
    ("set_limits", "/v1/limits", {"by": "ann"}),
    ("watch_many", "/v1/watch", {"watches": [{"kind": "znode"}]}),
]


@pytest.mark.parametrize(("operation_id", "path", "body"), REFUSED_BY_BOTH)
async def test_what_the_schema_refuses_the_server_refuses(
    api: Api, operation_id: str, path: str, body: Any
) -> None:
    """The document is no stricter and no laxer than the reader, where both can say it."""
    step = Step(operation_id, path, body)
    schema = described(step)["requestBody"]["content"]["application/json"]["schema"]
    errors = list(Draft202012Validator({**schema, "components": CLOSED}).iter_errors(body))

    reply = await api.call(OPERATIONS[operation_id].method, path, body)

    assert errors
    assert (reply.status, reply.code) == (400, "BadArguments")
    refuse_unexpected(step, reply)


def test_the_statuses_of_all_errors_are_known() -> None:
    """Every status that an error of the tree can have is one that some operation describes."""
    described_statuses = {
        int(status)
        for operations in DOCUMENT["paths"].values()
        for operation in operations.values()
        for status in operation["responses"]
    }
    not_from_routes = {401, 405}  # no authentication yet; 405 belongs to no operation

    of_errors = {kind.http_status for kind in REGISTRY.values()}
    assert of_errors - not_from_routes <= described_statuses


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the document that says ``anyOf``, ``oneOf`` or ``allOf``."""
    if isinstance(value, dict):
        if {"anyOf", "oneOf", "allOf"} & value.keys():
            yield value
        for each in value.values():
            yield from schemas_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from schemas_in(each)


def test_generators_find_what_they_ask_for() -> None:
    """One tag that is explained, a description, a body that is required: also where no linter and
    no generator is installed (tests/openapi_clients has those)."""
    tags = {each["name"] for each in DOCUMENT["tags"]}
    assert DOCUMENT["servers"]
    assert DOCUMENT["security"] == [{}, {"token": []}, {"certificate": []}]
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"token", "certificate"}
    used = set()
    for path in DOCUMENT["paths"].values():
        for method, operation in path.items():
            (tag,) = operation["tags"]
            used.add(tag)
            assert operation["description"]
            assert all(each["description"] for each in operation["parameters"])
            assert method != "post" or operation["requestBody"]["required"] is True
    assert used == tags


def test_no_alternative_is_only_a_list_of_required_fields() -> None:
    """Generators make a class of each alternative, and of one without fields nonsense."""
    for schema in schemas_in(DOCUMENT):
        for kind in ("anyOf", "oneOf", "allOf"):
            for each in schema.get(kind, ()):
                assert each.keys() - {"required", "description"}, schema
