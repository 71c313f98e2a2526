"""Access rights of a local cluster: its administrator's token, and those that a test draws."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.client import Client
from coordinator.model.access import Rule, Verb


class LocalAccess:
    """Rights that are on from the start; ``begin`` turns them on."""

    def __init__(self) -> None:
        self.admin_token = ""
        """The token of the identity ``admin``, which may do everything."""

    def begin(self, client: Client) -> None:
        """Turn access rights on."""
        self.admin_token = client.init_access().token

    def token(self, admin: Client, identity: str, rules: Mapping[str, str]) -> str:
        """Return a token of an identity that may do this and nothing else.

        Args:
            admin: a client with ``admin_token``: ``cluster.connect()`` makes one.
            identity: made, or changed; its role has the same name.
            rules: verbs, separated by commas, by prefix: ``{"/locks/pay": "lock"}``.

        Raises:
            BadArgumentsError: a rule is none.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        made = [
            Rule(prefix, tuple([Verb(each.strip()) for each in verbs.split(",")]))
            for prefix, verbs in rules.items()
        ]
        admin.put_role(identity, made)
        admin.put_identity(identity, [identity])
        return admin.add_token(identity).token
