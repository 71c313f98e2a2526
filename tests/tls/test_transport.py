"""The transport of TLS without a socket: turns of handshakes, and what a hostile side may cost."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest

from coordinator.tls.files import MemberTls, TlsFiles, member_tls
from coordinator.tls.handshakes import AT_ONCE, READ_BYTES, Handshakes
from coordinator.tls.names import client_uri, member_uri
from coordinator.tls.pipe import TlsPipe
from coordinator.tls.transport import ANSWERS_UNSENT_BYTES_MAX, TlsTransport
from tests.certificates import Certificates


class Plain(asyncio.Transport):
    """The connection below: remembers what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unsent_bytes = 0
        self.is_closed = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(Any, protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def take(self) -> bytes:
        data, self.written = bytes(self.written), bytearray()
        return data

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Owner(asyncio.Protocol):
    """Whose connection it is."""

    def __init__(self) -> None:
        self.secured: TlsTransport | None = None
        self.data = bytearray()
        self.errors: list[Exception] = []

    def on_secured(self, transport: TlsTransport) -> None:
        self.secured = transport

    def on_tls_failed(self, error: Exception) -> None:
        self.errors.append(error)

    def data_received(self, data: bytes) -> None:
        self.data += data


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> MemberTls:
    made = Certificates(tmp_path_factory.mktemp("certs"))
    return member_tls(TlsFiles(*made.member("1"), made.ca_file), member_uri("test", "1"))


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 - there is nobody to set an event
        await asyncio.sleep(0)


class Side:
    """One caller, and the server's end of its connection."""

    def __init__(self, tls: MemberTls, handshakes: Handshakes) -> None:
        self.pipe = TlsPipe(tls.client)
        self.pipe.shake()
        self.plain, self.owner = Plain(), Owner()
        self.transport = TlsTransport(self.owner, tls.server, handshakes, is_server=True)
        self.transport.begin(self.plain, self.pipe.to_send())

    def send(self, data: bytes) -> None:
        """Let the server read ``data``, as a loop reads."""
        while data:
            buffer = self.transport.get_buffer(-1)
            part, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(part)] = part
            self.transport.buffer_updated(len(part))

    async def finish(self, more: bytes = b"") -> None:
        await until(lambda: bool(self.plain.written))
        self.pipe.feed(self.plain.take())
        assert self.pipe.shake()
        self.send(self.pipe.to_send() + (self.pipe.sealed(more) if more else b""))
        await until(lambda: self.owner.secured is not None)


async def test_a_pass_works_at_a_few_handshakes(tls: MemberTls) -> None:
    """However many come at once; all have their turn, in order."""
    handshakes = Handshakes(1_000)
    sides = [Side(tls, handshakes) for _ in range(5 * AT_ONCE)]
    for count in range(1, 6):
        await asyncio.sleep(0)
        answered = [bool(side.plain.written) for side in sides]
        assert answered == [number < count * AT_ONCE for number in range(len(sides))]


async def test_the_oldest_of_too_many_makes_room(tls: MemberTls) -> None:
    """One that was answered and is silent; those that wait for their turn cost nothing yet."""
    handshakes = Handshakes(3)
    sides = [Side(tls, handshakes) for _ in range(5)]
    assert len(handshakes) == 0
    await until(lambda: bool(sides[-1].plain.written))

    assert [side.plain.is_closed for side in sides] == [True, True, False, False, False]
    assert [len(side.owner.errors) for side in sides] == [1, 1, 0, 0, 0]
    await sides[4].finish()


async def test_what_follows_the_handshake_at_once_is_heard(tls: MemberTls) -> None:
    """It may come in the same bytes; what is long is read in parts."""
    side = Side(tls, Handshakes(10))
    await side.finish(b"first")
    blob = bytes(range(256)) * 2_000
    side.send(side.pipe.sealed(blob))

    assert bytes(side.owner.data) == b"first" + blob
    assert len(side.transport.get_buffer(-1)) == READ_BYTES


async def test_names_and_an_orderly_end(tls: MemberTls) -> None:
    """The other side's names are known; a close says so before the connection ends."""
    side = Side(tls, Handshakes(10))
    await side.finish()
    assert side.owner.secured is side.transport
    assert side.transport.certificate_names == (member_uri("test", "1"),)
    side.transport.write(b"the last")
    side.transport.close()
    side.transport.write(b"too late")
    side.pipe.feed(side.plain.take())

    assert side.pipe.opened() == b"the last"
    assert side.pipe.is_over
    assert side.plain.is_closed


async def test_a_changed_byte_ends_the_connection(tls: MemberTls) -> None:
    """And what it was part of is not heard."""
    side = Side(tls, Handshakes(10))
    await side.finish()
    changed = bytearray(side.pipe.sealed(b"x" * 100))
    changed[50] ^= 1
    side.send(bytes(changed))

    assert side.owner.data == b""
    assert isinstance(side.owner.errors[0], ssl.SSLError)
    assert side.plain.is_closed


async def test_answers_of_tls_itself_are_bounded(
    tls: MemberTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for new keys without end, and reads none of the answers, is ended."""
    side = Side(tls, Handshakes(10))
    await side.finish()
    monkeypatch.setattr(TlsPipe, "to_send", lambda _: b"new keys")
    side.plain.unsent_bytes = ANSWERS_UNSENT_BYTES_MAX
    side.send(side.pipe.sealed(b"1"))
    assert not side.plain.is_closed
    side.plain.unsent_bytes += 1
    side.send(side.pipe.sealed(b"2"))

    assert side.plain.is_closed
    assert side.owner.data == b"1"


async def test_nothing_is_left_of_a_connection_that_failed(tls: MemberTls) -> None:
    """Without the collector: a member puts long-lived objects aside, and a cycle would stay."""

    def count() -> int:
        return sum(type(each) is TlsTransport for each in gc.get_objects())

    gc.collect()
    before, was_enabled = count(), gc.isenabled()
    gc.disable()
    try:
        for _ in range(3):
            side = Side(tls, Handshakes(10))
            await side.finish()
            side.send(b"\x17\x03\x03\x00\x05hello")
            side.transport.connection_lost(None)
            assert side.owner.errors
            del side
        await asyncio.sleep(0)
        assert count() == before
    finally:
        if was_enabled:
            gc.enable()


def test_no_clients_name_is_a_members() -> None:
    """Ids of members have no slash, and names are quoted."""
    assert client_uri("c", "1") == "coordinator://c/clients/1"
    assert client_uri("c", "../1") == "coordinator://c/clients/..%2F1"
    assert member_uri("a/b", "1") == "coordinator://a%2Fb/1"
