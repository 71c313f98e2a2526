"""Bearer tokens, as text: how one is written, which part is its name, and its digest.

``co_<token id>_<43 characters>``: the id names the token to people and in the state; the rest are
256 random bits. The state keeps the SHA-256 of the whole text, so neither the state nor a backup of
it opens a door; a slow hash adds nothing to 256 random bits. The one who draws a token draws its
bits.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode

SECRET_BYTES = 32
ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 10
"""The length of an id that is drawn."""
DIGEST_BYTES = 32
_ANYWHERE = re.compile(
    r"co_([a-z0-9]{8,32})_[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"
)
"""Also a part of one, which was cut off; and what a JSON object in base64 begins with."""
_FORM = re.compile(r"co_([a-z0-9]{8,32})_[A-Za-z0-9_-]{43}")


def token_of(token_id: str, secret: bytes) -> str:
    """Return the token of this id with these random bytes."""
    assert len(secret) == SECRET_BYTES, "a token has 256 random bits"
    text = f"co_{token_id}_{urlsafe_b64encode(secret).decode('ascii').rstrip('=')}"
    assert _FORM.fullmatch(text) is not None, "the id of a token is 8 to 32 of a-z and 0-9"
    return text


def drawn_id(secret: bytes) -> str:
    """Return an id for a token, made from random bytes other than its secret."""
    return "".join([ID_CHARACTERS[each % len(ID_CHARACTERS)] for each in secret[:ID_LENGTH]])


def token_id_in(text: str) -> str | None:
    """Return the id of what looks like a token, None if it does not."""
    match = _FORM.fullmatch(text)
    return None if match is None else match.group(1)


def without_tokens(text: str) -> str:
    """Return ``text`` with only the ids of the tokens in it, and nothing of those of issuers."""
    return _ANYWHERE.sub(lambda found: f"co_{found[1]}_***" if found[1] else "***", text)


def digest_of(token: str) -> bytes:
    """Return what the state keeps of a token."""
    return hashlib.sha256(token.encode("ascii")).digest()
