"""What a page of another site can make a browser send is refused, on every route that writes.

There is no authentication yet: a browser that shows a hostile page speaks for whoever sits at it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.wire.http.openapi_operations import OPERATIONS
from tests.wire.serving import Api

SIMPLE = ["", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
"""What is sent to another site without asking first (Fetch standard); "" is a Blob without type."""

POSTS = sorted(
    {each.template for each in OPERATIONS.values() if each.method == "POST"},
)


def url(template: str) -> str:
    return re.sub(r"\{\w+\}", "x", template)


def test_every_route_that_writes_by_post_is_known() -> None:
    """A new route is a row here without being asked."""
    assert "/v1/sessions/{session_id}/heartbeat" in POSTS
    assert len(POSTS) >= 9


@pytest.mark.parametrize("content_type", SIMPLE)
@pytest.mark.parametrize("template", POSTS)
async def test_what_any_page_can_post_is_refused(
    api: Api, template: str, content_type: str
) -> None:
    """With an empty body, with one, and raw: nothing of it reaches a route."""
    query = "?raw&mode=persistent_sequential&parents=persistent" if "tree" in template else ""
    for data in (b"", b"{}", b'{"timeout_ms": 60000}'):
        reply = await api.call(
            "POST",
            url(template) + query,
            data=data,
            headers={"Content-Type": content_type} if content_type else {},
            without_type=True,
        )

        assert (reply.status, reply.code) == (400, "BadArguments"), reply
        assert "Content-Type" in reply.body["detail"]
    assert api.member.labels()[1] == 0, "nothing was written"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "application/msgpack"},
        {"Content-Type": "application/octet-stream"},
        {"Coordinator-Timeout-Ms": "5000"},
        {"Coordinator-Client-Id": "c", "Coordinator-Request-Number": "1"},
    ],
)
async def test_an_empty_body_says_what_it_is(api: Api, headers: dict[str, str]) -> None:
    """Scripts and our own client do: by a content type, or by a header of ours."""
    reply = await api.call("POST", "/v1/sessions", headers=headers, data=b"", without_type=True)

    assert reply.status == 201


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403), ("null", 403), ("http://localhost:1", 403), ("", 403),
        ("http://127.0.0.1", 403), ("file://", 403), ("http://[", 403), ("http://{host}", 201),
        ("http://{host}.evil.example", 403), ("http://evil{host}", 403),
    ],
)  # fmt: skip
async def test_a_foreign_origin_does_not_write(api: Api, origin: str, status: int) -> None:
    """Also where the browser sends no Sec-Fetch headers: beyond https and localhost."""
    host = api.server.url.removeprefix("http://")
    headers = {"Origin": origin.format(host=host), "Content-Type": "application/json"}

    for method, path, body in (
        ("POST", "/v1/sessions", b"{}"),
        ("PUT", "/v1/tree/a?create", b'{"data": ""}'),
    ):
        reply = await api.call(method, path, headers=headers, data=body)

        assert reply.status == status
    assert (await api.get("/v1/sessions", Origin="http://evil.example")).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_raw_data_says_that_it_is(api: Api, method: str) -> None:
    """One content type, and no other; ``curl --data-binary`` alone sends a form's."""
    target = "/v1/tree/a?raw" if method == "POST" else "/v1/tree/a?raw&create"
    refused = await api.call(
        method, target, data=b"x", headers={"Content-Type": "application/json"}
    )
    taken = await api.call(
        method, target, data=b"x", headers={"Content-Type": "application/octet-stream"}
    )

    assert (refused.status, refused.code) == (400, "BadArguments")
    assert taken.status == 201


def test_the_compose_file_names_its_members() -> None:
    """They listen beyond loopback in their containers, and are called by their services' names."""
    compose = (Path(__file__).resolve().parents[2] / "docker-compose.yml").read_text("utf-8")
    (told,) = re.findall(r'COORDINATOR_HTTP_ALLOWED_HOSTS: "([^"]+)"', compose)

    assert told.split(",") == re.findall(r"^    hostname: (\S+)$", compose, re.MULTILINE)
    assert "COORDINATOR_HTTP_BIND_HOST: 0.0.0.0" in compose
