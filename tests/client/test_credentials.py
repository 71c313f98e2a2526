"""What a client proves its identity by: where the token comes from, and how it travels."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.calling.calls import Call
from coordinator.client.calling.credentials import TOKEN_FILE_VARIABLE, Credentials, credentials_of
from coordinator.client.calling.transport import Request
from coordinator.client.connecting import connect
from coordinator.client.stream.conversation import Conversation
from coordinator.errors import BadArgumentsError
from coordinator.model.tokens import digest_of, token_id_in, token_of
from coordinator.wire.encoding import Encoding
from coordinator.wire.stream import frames

TOKEN = token_of("first000", bytes(32))
OTHER = token_of("second00", bytes(range(32)))


def test_a_token_has_its_id_in_it_and_its_digest_is_of_the_whole() -> None:
    """Another id, or another secret, is another digest."""
    assert token_id_in(TOKEN) == "first000"
    assert token_id_in(TOKEN + "x") is None
    assert token_id_in("co_short_" + TOKEN[-43:]) is None
    assert digest_of(TOKEN) != digest_of(token_of("second00", bytes(32)))


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Replaced as Kubernetes does, or written in place; while it is empty or gone the last one
    counts."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    credentials = Credentials(None, file)
    seen = [credentials.authorization()]
    (tmp_path / "next").write_text(OTHER)
    os.replace(tmp_path / "next", file)
    seen.append(credentials.authorization())
    file.write_text("")
    seen.append(credentials.authorization())
    file.unlink()
    seen.append(credentials.authorization())
    file.write_text(TOKEN)
    seen.append(credentials.authorization())

    assert seen == [f"Bearer {each}" for each in (TOKEN, OTHER, OTHER, OTHER, TOKEN)]


async def test_requests_of_one_pass_share_a_look_at_the_file(tmp_path: Path) -> None:
    """The next pass looks again, and so does another loop."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    credentials = Credentials(None, file)
    seen = [credentials.authorization()]
    file.write_text(OTHER)
    seen.append(credentials.authorization())
    await asyncio.sleep(0)
    seen.append(credentials.authorization())
    file.write_text(TOKEN)

    async def ask() -> str | None:
        return credentials.authorization()

    seen.append(await asyncio.to_thread(asyncio.run, ask()))

    assert seen == [f"Bearer {each}" for each in (TOKEN, TOKEN, OTHER, TOKEN)]


def test_the_environment_counts_if_no_argument_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument counts more; an empty one says that no token is to be shown."""
    file = tmp_path / "token"
    file.write_text(OTHER)
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))

    assert credentials_of(None, None).authorization() == f"Bearer {OTHER}"
    assert credentials_of(TOKEN, None).authorization() == f"Bearer {TOKEN}"
    assert credentials_of("", None).authorization() is None


@pytest.mark.parametrize(
    "given",
    [
        {"token": "two words"},
        {"token": "line\nend"},
        {"token": TOKEN, "token_file": "x"},
        {"token_file": "/no/such/file"},
    ],
)
def test_what_is_no_token_is_refused_without_being_shown(given: dict[str, Any]) -> None:
    """At once, before anything is sent."""
    with pytest.raises(BadArgumentsError) as raised:
        connect("http://127.0.0.1:1", **given)

    assert "two words" not in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_a_request_does_not_show_its_token_where_it_is_printed() -> None:
    """Nor the frame that carries it."""
    request = Call("GET", "/v1/status").request(None, None, Encoding.JSON, _bearer(TOKEN))
    frame = frames.Credential(f"Bearer {TOKEN}")

    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in f"{request!r} {frame!r} {Credentials(TOKEN)!r}"


def test_the_stream_says_who_asks_once_and_again_when_it_changes() -> None:
    """Not with each request; and nobody in particular when no token is shown any more."""
    messages: list[Any] = []
    conversation = Conversation("http://a", lambda _url: None)
    conversation.welcome = frames.WelcomeSettings(member_id="1")
    reader = frames.from_client(1024 * 1024)
    for token in (None, TOKEN, TOKEN, OTHER, None):
        request = Call("GET", "/v1/status").request(None, None, Encoding.MSGPACK, _bearer(token))
        conversation.ask(request, _Nobody())
        reader.feed(bytes(conversation.take()))
        messages += reader.take()

    kinds = [
        each.authorization if isinstance(each, frames.Credential) else each.id for each in messages
    ]
    assert kinds == [1, f"Bearer {TOKEN}", 2, 3, f"Bearer {OTHER}", 4, "", 5]
    assert all("authorization" not in getattr(each, "headers", {}) for each in messages)


def test_the_same_request_twice_shows_the_same_token() -> None:
    """A request is not changed by its sending."""
    conversation = Conversation("http://a", lambda _url: None)
    conversation.welcome = frames.WelcomeSettings(member_id="1")
    request = Request("GET", target="/", headers={"Authorization": f"Bearer {TOKEN}"})
    conversation.ask(request, _Nobody())
    conversation.ask(request, _Nobody())
    reader = frames.from_client(1024 * 1024)
    reader.feed(bytes(conversation.take()))

    assert [type(each).__name__ for each in reader.take()] == [
        "Credential", "RequestFrame", "RequestFrame",
    ]  # fmt: skip


def _bearer(token: str | None) -> str | None:
    return Credentials(token).authorization() if token else None


class _Nobody:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_token_in_clear_text_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """To this machine and by TLS it is nobody else's; without a token there is nothing to say."""
    plain, other = "http://locks-1.example:7071", "http://[2001:db8::1]:7071"
    connect("http://127.0.0.1:7071,http://localhost:1,http://[::1]:1", token="co_1")
    connect("https://locks-1.example:7071", token="co_1")
    connect(plain)
    assert caplog.records == []

    connect(f"http://127.0.0.1:7071,{plain}", token="co_1")
    connect(plain, token="co_1")
    connect(other, token="co_1")
    logged = [each.getMessage() for each in caplog.records]
    assert len(logged) == 2
    assert "goes to locks-1.example in clear text" in logged[0]
    assert "https://" in logged[0]
    assert "co_1" not in logged[0]
