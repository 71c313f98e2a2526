"""Every number of the API: what an answer may say, a request may name.

A request that takes less ends compare-and-set, or the use of a grant, once the number is beyond it:
versions did so after 2^31 changes of one znode.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.model.fields import INTEGER_MAX
from coordinator.wire.http.openapi import openapi_document
from tests.wire.serving import serving

DOCUMENT = openapi_document("test")
_PREFIX = re.compile(r"^(expected|at_least|from|own|after)_|_(min|max)$")
"""What a condition, or a place to begin, adds to the name of a number."""


def integers(schema: Any, name: str, seen: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Return the name and the maximum of each integer in ``schema``, which is called ``name``."""
    if (reference := schema.get("$ref")) is not None:
        kind = reference.rpartition("/")[2]
        if kind not in seen:
            whole = DOCUMENT["components"]["schemas"][kind]
            yield from integers(whole, name, (*seen, kind))
        return
    if schema.get("type") == "integer":
        yield name, schema.get("maximum", INTEGER_MAX + 1)
    for each in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(each, ()):
            yield from integers(part, name, seen)
    for each in ("items", "additionalProperties"):
        if isinstance(schema.get(each), dict):
            yield from integers(schema[each], name, seen)
    for key, part in schema.get("properties", {}).items():
        yield from integers(part, key, seen)


def numbers() -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """Return the maxima of the numbers in requests and in answers, by name."""
    asked: dict[str, set[int]] = defaultdict(set)
    said: dict[str, set[int]] = defaultdict(set)
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                for name, most in integers(parameter["schema"], parameter["name"]):
                    asked[_PREFIX.sub("", name)].add(most)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                for name, most in integers(content["schema"], ""):
                    asked[_PREFIX.sub("", name)].add(most)
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    for name, most in integers(content.get("schema", {}), ""):
                        said[name].add(most)
    return asked, said


OF_REQUESTS = {"timeout_ms": "how long an acquire waits; answers say it of sessions"}
"""Names that a request gives to something else than an answer."""


def test_a_request_may_name_every_number_that_an_answer_may_say() -> None:
    """By each name that both have; and no number of an answer is without a bound."""
    asked, said = numbers()
    assert {"version", "czxid", "zxid", "fencing_token", "size", "max_hold_ms"} <= set(asked)
    narrower = {
        name: (min(asked[name]), max(said[name]))
        for name in asked.keys() & said.keys() - OF_REQUESTS.keys()
        if min(asked[name]) < max(said[name])
    }
    assert narrower == {}
    assert {name for name, most in said.items() if max(most) > INTEGER_MAX} == set()


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 2**53 + 1, INTEGER_MAX])
async def test_each_way_to_name_a_version_takes_every_version(number: int) -> None:
    """In a body, a query, a header and a multi: the znode has another one, and that is said."""
    delete = {"op": "delete", "path": "/a", "expected_version": number}
    check = {"op": "check", "path": "/a", "expected_version": number, "expected_czxid": number}
    async with serving() as api:
        await api.post("/v1/tree/a", {"data": "x"})
        for answer in (
            await api.put("/v1/tree/a", {"data": "y", "expected_version": number}),
            await api.call("PUT", f"/v1/tree/a?raw&expected_version={number}", data=b"y",
                           headers={"Content-Type": "application/octet-stream"}),
            await api.put("/v1/tree/a", {"data": "y"}, **{"If-Match": f'"{number}"'}),
            await api.put("/v1/tree/a", {"data": "y"}, **{"If-Match": f'"0-{number}"'}),
            await api.delete(f"/v1/tree/a?expected_version={number}"),
            await api.delete(f"/v1/tree/a?expected_czxid={number}"),
            await api.delete("/v1/tree/a", **{"If-Match": f'"{number}-{number}"'}),
            await api.post("/v1/multi", {"operations": [delete]}),
            await api.post("/v1/multi", {"operations": [check]}),
            await api.call("PATCH", "/v1/limits", {"limits": {"children_max": 9}, "by": "ann",
                                                   "expected_version": number}),
        ):  # fmt: skip
            assert (answer.status, answer.code) == (412, "BadVersion"), answer.raw
        for beyond in (f'"{INTEGER_MAX + 1}"', f'"0-{INTEGER_MAX + 1}"'):
            answer = await api.put("/v1/tree/a", {"data": "y"}, **{"If-Match": beyond})
            assert (answer.status, answer.code) == (400, "BadArguments")


@pytest.mark.parametrize("number", [2**31, 2**53 + 1, INTEGER_MAX])
async def test_each_way_to_name_a_grant_takes_every_token(number: int) -> None:
    """As a condition, in the id of a grant, in questions: there is none of this token."""
    held = {"lock": "a", "fencing_token": number}
    async with serving() as api:
        await api.post("/v1/tree/a", {"data": "x"})
        lost = (
            await api.put("/v1/tree/a", {"data": "y", "if_held": held}),
            await api.delete(f"/v1/tree/a?if_held=a:{number}"),
        )
        assert [(each.status, each.code) for each in lost] == [(410, "LockLost")] * 2
        gone = await api.delete(f"/v1/locks/a/grants/1-{number}")
        assert (gone.status, gone.code) == (409, "NotOwner")
        for question in ("locks/a", "grants"):
            asked = await api.get(f"/v1/{question}?fencing_token={number}")
            assert asked.status == 200
