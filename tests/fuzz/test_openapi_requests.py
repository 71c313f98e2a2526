"""The HTTP API fuzzed from its own description: good and bad requests, every route, two members.

Whatever is sent, the answer is one that the description names, of a type and shape it names.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from coordinator.errors import REGISTRY
from coordinator.service.base.replica import ALL_OUTCOMES
from coordinator.state.commands import Abandon, Command, ExpireSession, Reap
from coordinator.state.outcomes import Outcome
from tests.fuzz.budget import Fuzz
from tests.fuzz.served import Served, on_loopback, with_disk
from tests.fuzz.watch import Watch, watching

CHECKS = [
    checks.status_code_conformance,  # the first: left out where another operation is answered
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
TIMEOUT_S = 10.0
PATIENCE_S = 0.25
LONG = frozenset({"watch", "watch_many", "get_election", "acquire_lock", "campaign"})
"""Operations that go on, or wait for somebody, for as long as their caller stays:
here for ``PATIENCE_S``."""
OPERATION_MS = "100"
CHORES = (ExpireSession, Reap, Abandon)
"""What a member does by itself: at its times, and behind a caller that has hung up."""


class Deeds:
    """Counts what was done for callers, as the member's replica applies it."""

    interest = ALL_OUTCOMES

    def __init__(self, served: Served) -> None:
        self.count = 0
        self._zxid = 0
        if served.member is not None:
            served.member.member._replica.add_listener(self)

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        has_changed = outcome.refusal is None and not outcome.is_repeat and bool(outcome.events)
        is_session = outcome.zxid > self._zxid
        self._zxid = max(self._zxid, outcome.zxid)
        if not isinstance(command.operation, CHORES):
            self.count += has_changed or is_session

    def on_restore(self) -> None:
        raise AssertionError("nothing is restored here")


class Caller:
    """Sends what is generated to one member, and judges the answers.

    Access rights are on. Most requests are those of an identity that may do everything, so that
    what they ask is looked at; each fourth shows no credential."""

    def __init__(self, served: Served, watch: Watch, of_seed: int) -> None:
        self._served = served
        self._watch = watch
        self._seed = of_seed
        self._session = requests.Session()
        self._deeds = Deeds(served)
        self._numbered: set[tuple[str, str]] = set()
        begun = requests.post(served.url + "/v1/access/init", json={}, timeout=TIMEOUT_S)
        self._authorization = f"Bearer {begun.json()['token']}"
        self._count = 0

    def send(self, case: Any) -> None:
        case.headers = {**(case.headers or {}), "Coordinator-Timeout-Ms": OPERATION_MS}
        case.headers.pop("Authorization", None)
        self._count += 1
        if self._count % 4:
            case.headers["Authorization"] = self._authorization
        shown = f"seed {self._seed}: {case.method} {case.formatted_path} {case.query} {case.body!r}"
        operation_id = case.operation.definition.raw["operationId"]
        deeds = self._deeds.count
        try:
            response = case.call(
                base_url=self._served.url,
                session=self._session,
                timeout=(TIMEOUT_S, PATIENCE_S if operation_id in LONG else TIMEOUT_S),
            )
        except requests.Timeout:
            assert operation_id in LONG, shown
            self._watch.took(0.0, shown)
            return
        self._watch.took(response.elapsed, shown)
        self._watch.done.accepted += response.status_code < 400
        assert response.status_code != 500, shown
        if response.status_code >= 400 and case.method != "HEAD":
            assert response.headers["content-type"] == ["application/problem+json"], shown
            assert response.json()["code"] in REGISTRY, shown
            assert len(response.content) < 4_000, shown
            if response.json()["definite"] and operation_id not in LONG:
                assert self._deeds.count == deeds, f"{shown}: refused, and done all the same"
        is_earlier_refusal = self._is_numbered_again(case) and response.status_code >= 400
        case.validate_response(response, checks=CHECKS[is_earlier_refusal:])
        self._refuses_what_is_wrong(case, response)

    def _is_numbered_again(self, case: Any) -> bool:
        """Whether its request number stands for an operation sent before, of another kind perhaps:
        the refusal of that one is its answer (``state/repeats``), with a status of that one."""
        given = {name.lower(): str(value) for name, value in case.headers.items()}
        names = ("coordinator-client-id", "coordinator-request-number")
        if any(name not in given for name in names):
            return False
        number = (given[names[0]], given[names[1]])
        is_again = number in self._numbered
        self._numbered.add(number)
        return is_again

    @staticmethod
    def _refuses_what_is_wrong(case: Any, response: Any) -> None:
        """Only bodies are judged: ``?stale`` says true as well, which OpenAPI has no word for, and
        of the headers one is replaced above. What is too long is refused before it is read."""
        if response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return
        try:
            case.validate_response(response, checks=[checks.negative_data_rejection])
        except FailureGroup as failures:
            rest = [each for each in failures.exceptions if " in body" in str(each)]
            if rest:
                raise rest[0] from None


def generate(served: Served, fuzz: Fuzz, name: str, *, document: dict[str, Any]) -> None:
    """Send as many requests as are asked for: to each route (to some, if they are fewer), good ones
    and bad ones."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=served.url)
    operations = [found.ok() for found in schema.get_all_operations()]
    each, rest = divmod(fuzz.count(name), 2 * len(operations))
    if not each:
        each, operations = 1, fuzz.random(name).sample(operations, max(1, rest // 2))
    with watching(fuzz.of(name), served.pid) as watch:
        caller = Caller(served, watch, fuzz.seed)
        for operation in operations:
            for mode in GenerationMode:

                @seed(fuzz.seed)
                @settings(
                    max_examples=each,
                    database=None,
                    deadline=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(operation.as_strategy(generation_mode=mode))
                def send(case: Any) -> None:
                    caller.send(case)

                send()
    ready = requests.get(served.url + "/health/ready", timeout=TIMEOUT_S)
    assert ready.status_code == 200


def document_of(served: Served) -> dict[str, Any]:
    """Return what the member itself says of its routes."""
    document: dict[str, Any] = requests.get(served.url + "/openapi.json", timeout=TIMEOUT_S).json()
    return document


@pytest.mark.timeout(240)
def test_every_route_answers_as_it_says(fuzz: Fuzz) -> None:
    """A member over the loopback engine."""
    with on_loopback() as served:
        generate(served, fuzz, "openapi", document=document_of(served))


@pytest.mark.timeout(240)
def test_every_route_answers_as_it_says_with_a_disk(fuzz: Fuzz, tmp_path: Path) -> None:
    """A member with Raft and a log, in a process whose log and memory are looked at."""
    with with_disk(tmp_path) as served:
        generate(served, fuzz, "openapi-disk", document=document_of(served))
