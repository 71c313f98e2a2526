"""Guards with one planted bug each, and the same guard without: what the conformance kit must tell.

Each keeps its value in two small files and its turn by ``flock``, as an honest guard would; the
planted bug is the method that is overridden.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coordinator.errors import StaleTokenError, StaleWriteError


class Sound:
    """The guard without a bug: one lock around check and write, one file for both."""

    def __init__(self, directory: Path, name: str) -> None:
        self.file = directory / name
        self.lock = directory / f"{name}.lock"

    def write(self, token: int, value: str) -> None:
        self.expect_token(token)
        with self.locked():
            self.check(token, self.load()["token"])
            self.store(max(token, self.load()["token"]), value)

    def read(self) -> str | None:
        value: str | None = self.load()["value"]
        return value

    def raise_to(self, token: int) -> None:
        self.expect_token(token)
        with self.locked():
            self.check(token, self.load()["token"])
            self.store(token, self.load()["value"])

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.expect_token(token)
        self.expect_token(number)
        with self.locked():
            self.check(token, self.load()["token"])
            self.check_number(token, number, *self.load_number())
            self.store(token, value)
            self.store_number(token, number)

    def check_number(self, token: int, number: int, of_token: int, highest: int) -> None:
        if token == of_token and number <= highest:
            raise StaleWriteError(f"{number} under {token} is late, {highest} has been seen")

    def load_number(self) -> tuple[int, int]:
        try:
            token, number = json.loads(self.file.with_suffix(".number").read_text())
        except FileNotFoundError:
            return 0, 0
        return token, number

    def store_number(self, token: int, number: int) -> None:
        self.file.with_suffix(".number").write_text(json.dumps([token, number]))

    def expect_token(self, token: Any) -> None:
        if not isinstance(token, int) or isinstance(token, bool):
            raise TypeError("expected an integer")
        if not 0 < token < 2**63:
            raise ValueError("out of range")

    def check(self, token: int, highest: int) -> None:
        if token < highest:
            raise StaleTokenError(f"token {token} is lower than {highest}")

    def load(self) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(self.file.read_text())
        except FileNotFoundError:
            return {"token": 0, "value": None}
        return facts

    def store(self, token: int, value: str | None) -> None:
        aside = self.file.with_suffix(f".{os.getpid()}.{id(self)}")
        aside.write_text(json.dumps({"token": token, "value": value}))
        aside.replace(self.file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class CheckThenWrite(Sound):
    """Checks, and then writes, without holding anything in between."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield


class RefusesEqual(Sound):
    """Takes only tokens higher than the highest."""

    def check(self, token: int, highest: int) -> None:
        if token <= highest:
            raise StaleTokenError(f"token {token} is not higher than {highest}")


class ComparesText(Sound):
    """Compares the digits as words."""

    def check(self, token: int, highest: int) -> None:
        if str(token) < str(highest):
            raise StaleTokenError(f"token {token} is lower than {highest}")


class ComparesFloats(Sound):
    """Compares as a store does whose numbers are floats."""

    def check(self, token: int, highest: int) -> None:
        if float(token) < float(highest):
            raise StaleTokenError(f"token {token} is lower than {highest}")


class RemembersInMemory(Sound):
    """Each process has a highest token of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory, name)
        self.highest = 0

    def load(self) -> dict[str, Any]:
        return super().load() | {"token": self.highest}

    def store(self, token: int, value: str | None) -> None:
        self.highest = token
        super().store(token, value)


class WriteRaisesNothing(Sound):
    """Only ``raise_to`` moves the highest token, a write does not."""

    def write(self, token: int, value: str) -> None:
        self.expect_token(token)
        with self.locked():
            self.check(token, self.load()["token"])
            self.store(self.load()["token"], value)


class RaisesNothing(Sound):
    """``raise_to`` is taken to mean nothing until the first write."""

    def raise_to(self, token: int) -> None:
        self.expect_token(token)


class RaiseLowers(Sound):
    """``raise_to`` sets the token, whatever it was."""

    def raise_to(self, token: int) -> None:
        with self.locked():
            self.store(token, self.load()["value"])


class TakesWords(Sound):
    """Compares whatever has a ``<``, after making an integer of it."""

    def expect_token(self, token: Any) -> None:
        int(token)

    def check(self, token: int, highest: int) -> None:
        super().check(int(token), highest)

    def store(self, token: int, value: str | None) -> None:
        super().store(int(token), value)

    def write(self, token: int, value: str) -> None:
        super().write(int(token), value)


class DataFirst(Sound):
    """Writes the data, then the token: killed in between, the data is there without its token."""

    def store(self, token: int, value: str | None) -> None:
        super().store(self.load()["token"], value)
        super().store(token, value)


class LockLeftBehind(Sound):
    """Locks by a file that a killed process leaves behind."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        for _ in range(200):
            try:
                os.close(os.open(self.lock, os.O_CREAT | os.O_EXCL))
                break
            except FileExistsError:
                time.sleep(0.01)
        else:
            raise TimeoutError("locked")
        try:
            yield
        finally:
            self.lock.unlink()


class RefusesInSilence(Sound):
    """Does not write under a lower token, and does not say so."""

    def write(self, token: int, value: str) -> None:
        try:
            super().write(token, value)
        except StaleTokenError:
            pass


class SaysHalf(Sound):
    """Refuses without the token that it has seen."""

    def check(self, token: int, highest: int) -> None:
        if token < highest:
            raise StaleTokenError(f"token {token} is stale")


class OneForAll(Sound):
    """One highest token for everything it guards."""

    def load(self) -> dict[str, Any]:
        shared = Sound(self.file.parent, "shared")
        token = 0 if type(self) is Sound else Sound.load(shared)["token"]
        return Sound.load(self) | {"token": token}

    def store(self, token: int, value: str | None) -> None:
        Sound(self.file.parent, "shared").store(token, None)
        super().store(token, value)


class LetsEqualNumbersPass(Sound):
    """Takes a write that comes twice."""

    def check_number(self, token: int, number: int, of_token: int, highest: int) -> None:
        super().check_number(token, number, of_token, highest - 1)


class NumbersOutliveTokens(Sound):
    """Goes on counting when there is a new holder."""

    def check_number(self, token: int, number: int, of_token: int, highest: int) -> None:
        super().check_number(token, number, token, highest)


class NumbersAsText(Sound):
    """Compares the digits as words."""

    def check_number(self, token: int, number: int, of_token: int, highest: int) -> None:
        if token == of_token and str(number) <= str(highest):
            raise StaleWriteError(f"{number} under {token} is late, {highest} has been seen")


class NumbersInMemory(Sound):
    """Each process has numbers of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(directory, name)
        self.number = 0, 0

    def load_number(self) -> tuple[int, int]:
        return self.number

    def store_number(self, token: int, number: int) -> None:
        self.number = token, number


class NumberThenWrite(Sound):
    """Checks the number, and then writes, without holding anything in between."""

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.expect_token(token)
        self.expect_token(number)
        self.check_number(token, number, *self.load_number())
        with self.locked():
            self.check(token, self.load()["token"])
            self.store(token, value)
            self.store_number(token, number)


class SaysNoNumber(Sound):
    """Refuses without the number that it has seen."""

    def check_number(self, token: int, number: int, of_token: int, highest: int) -> None:
        try:
            super().check_number(token, number, of_token, highest)
        except StaleWriteError:
            raise StaleWriteError(f"token {token}: late") from None


class Awaited:
    """The sound guard with coroutines; ``open`` is one too."""

    def __init__(self, sound: Sound) -> None:
        self._sound = sound

    async def write(self, token: int, value: str) -> None:
        self._sound.write(token, value)

    async def write_numbered(self, token: int, number: int, value: str) -> None:
        self._sound.write_numbered(token, number, value)

    async def read(self) -> str | None:
        return self._sound.read()

    async def raise_to(self, token: int) -> None:
        self._sound.raise_to(token)


PLANTED: dict[type[Sound], str] = {
    CheckThenWrite: "paused-writer",
    RefusesEqual: "equal-tokens",
    ComparesText: "numbers-not-words",
    ComparesFloats: "numbers-not-words",
    RemembersInMemory: "restart",
    WriteRaisesNothing: "lower-tokens",
    RaisesNothing: "raised-guard",
    RaiseLowers: "raising-lowers-nothing",
    TakesWords: "only-integers",
    DataFirst: "crash",
    LockLeftBehind: "crash",
    RefusesInSilence: "lower-tokens",
    SaysHalf: "lower-tokens",
    OneForAll: "separate-values",
    LetsEqualNumbersPass: "numbered-writes",
    SaysNoNumber: "numbered-writes",
    NumbersOutliveTokens: "numbers-of-each-token",
    NumbersAsText: "whole-numbers",
    NumbersInMemory: "numbers-elsewhere",
    NumberThenWrite: "paused-numbered-writer",
}
"""Each planted bug and the trial that is made for it."""
