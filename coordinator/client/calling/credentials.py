"""The token that a client shows with its requests: given as text, or in a file that may change.

1. The file is looked at before each request, and read when it is another one: a token that was
   renewed (by Kubernetes, by hand) counts from the next request on, and nothing is restarted.
   Requests that begin in one pass of an event loop share a look, which costs as much as the rest of
   a short request.
2. While the file cannot be read, or is empty, the last token counts: it is being written.
3. A token appears in no error and no ``repr``.
4. A credential that was accepted, and is known nowhere since, was revoked: the client's session has
   ended in the cluster (``Acceptance``). One that has expired, or is not known to a member that
   lags, says nothing of the session: the file may bring the next.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from coordinator.client.calling.transport import Request
from coordinator.errors import GONE_FIELD, AuthFailedError, BadArgumentsError
from coordinator.wire.messages import AUTHORIZATION

TOKEN_FILE_VARIABLE = "COORDINATOR_TOKEN_FILE"  # noqa: S105 (the name of a variable)
TOKEN_CHARACTERS_MAX = 4_096
_FORM = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # a bearer token, RFC 6750


class HiddenText(str):
    """Text that does not show itself where values are printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Credentials:
    """The token of a client, or none: then it proves no identity."""

    __slots__ = ("_authorization", "_file", "_looked_in", "_seen")

    def __init__(
        self, token: str | None = None, token_file: str | os.PathLike[str] | None = None
    ) -> None:
        self._file = Path(token_file) if token_file else None
        self._seen: tuple[int, ...] = ()
        self._looked_in: asyncio.AbstractEventLoop | None = None
        """In whose present pass the file was looked at."""
        self._authorization: HiddenText | None = None
        if token:
            self._authorization = _bearer(token, "token")
        elif self._file is not None:
            self._read(self._file)

    def authorization(self) -> str | None:
        """Return the header that shows the token, None without one."""
        if self._file is not None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # a thread without one
                self._look(self._file)
            else:
                if loop is not self._looked_in:
                    self._look(self._file)
                    self._looked_in = loop
                    loop.call_soon(self._end_pass)
        return self._authorization

    def _end_pass(self) -> None:
        self._looked_in = None

    def _look(self, file: Path) -> None:
        try:
            if _identity_of(os.stat(file)) != self._seen:
                self._read(file)
        except (OSError, BadArgumentsError):
            pass  # it is being replaced: the next request looks again

    def _read(self, file: Path) -> None:
        try:
            with file.open("rb") as opened:
                seen = _identity_of(os.fstat(opened.fileno()))
                raw = opened.read(TOKEN_CHARACTERS_MAX + 2)
        except OSError as error:
            raise BadArgumentsError(
                f"token_file: expected a file with a token at {str(file)!r}: "
                f"{os.strerror(error.errno or 0)}"
            ) from None
        text = raw.decode("ascii", "replace").strip()
        self._authorization = _bearer(text, f"token_file {str(file)!r}")
        self._seen = seen


class Acceptance:
    """Which credential was accepted last, and when an answer said so."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[str | None, int] | None = None

    def note(self, request: Request, status: int, now_ms: int) -> None:
        """The answer to ``request`` has come now; any other than a 401 has believed it.

        To what may share the lines of another request that one's answer may have been given."""
        if status != AuthFailedError.http_status and request.share is None:
            self._last = request.headers.get(AUTHORIZATION), now_ms

    def is_over(self, error: AuthFailedError, request: Request, sent_ms: int) -> bool:
        """Whether the credential that was accepted is gone, as ``error`` says of ``request``."""
        gone_ms, last = error.fields.get(GONE_FIELD), self._last
        if type(gone_ms) is not int or last is None:
            return False
        # A member may say again what it found before the credential came to be.
        shown, accepted_ms = last
        return shown == request.headers.get(AUTHORIZATION) and accepted_ms <= sent_ms - gone_ms


def credentials_of(token: str | None, token_file: str | os.PathLike[str] | None) -> Credentials:
    """Return what was given; else those in the file that the environment names, if it does.

    Raises:
        BadArgumentsError: both were given, or what was given is no token.
    """
    if token and token_file:
        raise BadArgumentsError("expected token or token_file, found both")
    if token is None and token_file is None:
        token_file = os.environ.get(TOKEN_FILE_VARIABLE)
    return Credentials(token, token_file)


def _identity_of(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _bearer(token: str, where: str) -> HiddenText:
    if len(token) > TOKEN_CHARACTERS_MAX or _FORM.fullmatch(token) is None:
        raise BadArgumentsError(
            f"{where}: expected a token as 'coordinator access token' writes it, found "
            f"{'nothing' if not token else f'{len(token)} characters of another form'}"
        )
    return HiddenText(f"Bearer {token}")
