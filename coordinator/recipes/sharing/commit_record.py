"""The record of one transaction of a commit log: its sites, their votes, the decision.

One znode holds all of it, so one version covers every vote: a decision is written only on the
votes that it was made from. All here is pure; a step returns the record after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from coordinator.errors import BadArgumentsError

State = Literal["open", "committed", "aborted"]
SiteState = Literal["asked", "preparing", "yes", "no", "applied", "written_off"]
"""A site is ``asked``, then ``preparing``, then it votes; ``applied``: it has done the decision.
``written_off``: it will not be asked to; whether it did is not known."""

SITES_MAX = 16
VALUE_BYTES_MAX = 4_096
_REASON_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction as it was when it was read; once it is decided, the decision stays.

    ``fencing_token`` is that of the coordinator that began it, then of the one that decided it.
    ``number`` orders the transactions of a log; it is the zxid at which it began.
    """

    key: str
    state: State
    sites: Mapping[str, SiteState]
    value: Any
    fencing_token: int
    reason: str = ""
    number: int = 0
    version: int = field(default=0, repr=False, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether nothing is decided: neither success nor failure may be reported."""
        return self.state == "open"

    @property
    def is_committed(self) -> bool:
        """Whether every site has voted yes, and applies it or has done so."""
        return self.state == "committed"

    @property
    def is_finished(self) -> bool:
        """Whether it is decided, and no site has anything left to do."""
        return not self.is_open and not {"preparing", "yes"} & set(self.sites.values())

    @property
    def is_voted(self) -> bool:
        """Whether waiting for more votes cannot change the decision."""
        states = set(self.sites.values())
        return "no" in states or states == {"yes"}

    def waits_for(self, site: str) -> bool:
        """Return whether ``site`` has a next step to do now."""
        states = ("asked", "preparing") if self.is_open else ("preparing", "yes")
        return self.sites.get(site) in states

    # --- steps

    def prepares(self, site: str) -> Transaction:
        """Return it with ``site`` at work on its vote; unchanged if it is past that."""
        if not self.is_open or self.state_of(site) != "asked":
            return self
        return self._with(site, "preparing")

    def votes(self, site: str, is_yes: bool, reason: str) -> Transaction:
        """Return it with the vote of ``site``; a vote counts once, and none after the decision."""
        if not self.is_open or self.state_of(site) in ("yes", "no"):
            return self
        if is_yes:
            return self._with(site, "yes")
        because = f"{site}: {reason or 'voted no'}"[:_REASON_CHARACTERS_MAX]
        return replace(self._with(site, "no"), reason=self.reason or because)

    def decides(self, fencing_token: int, why: str = "") -> Transaction:
        """Return it decided: committed if all sites have voted yes, else aborted (presumed)."""
        if not self.is_open:
            return self
        if set(self.sites.values()) == {"yes"}:
            return replace(self, state="committed", fencing_token=fencing_token, reason="")
        silent = [site for site, state in self.sites.items() if state in ("asked", "preparing")]
        reason = self.reason or f"{why or 'no vote'}: {', '.join(silent)}"[:_REASON_CHARACTERS_MAX]
        return replace(self, state="aborted", fencing_token=fencing_token, reason=reason)

    def applies(self, site: str) -> Transaction:
        """Return it with the decision done at ``site``.

        Raises:
            BadArgumentsError: nothing is decided.
        """
        if self.is_open:
            raise BadArgumentsError(
                f"{self.key}: expected a decision before {site!r} applies it, found none; "
                f"wait for it with decision()"
            )
        if self.state_of(site) not in ("preparing", "yes"):
            return self
        return self._with(site, "applied")

    def writes_off(self, site: str) -> Transaction:
        """Return it without waiting for ``site`` any more; unchanged unless it is waited for."""
        if self.is_open or not self.waits_for(site):
            return self
        return self._with(site, "written_off")

    def state_of(self, site: str) -> SiteState:
        """Return how far ``site`` is.

        Raises:
            BadArgumentsError: it is not one of the transaction's sites.
        """
        if site not in self.sites:
            raise BadArgumentsError(
                f"{self.key}: expected one of the sites {list(self.sites)}, found {site!r:.60}"
            )
        return self.sites[site]

    def _with(self, site: str, state: SiteState) -> Transaction:
        return replace(self, sites={**self.sites, site: state})

    # --- the znode

    def to_bytes(self) -> bytes:
        """Return the data of its znode.

        Raises:
            BadArgumentsError: ``value`` is no JSON value, or too long.
        """
        names = ("key", "state", "sites", "value", "fencing_token", "reason")
        try:
            value = json.dumps(self.value, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise BadArgumentsError(f"value: expected a JSON value, found none: {error}") from None
        if len(value) > VALUE_BYTES_MAX:
            raise BadArgumentsError(
                f"value: expected at most {VALUE_BYTES_MAX} bytes as JSON, found {len(value)}; "
                f"keep it elsewhere, and name it here"
            )
        fields = {name: getattr(self, name) for name in names}
        return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()

    @classmethod
    def of(cls, path: str, data: bytes, number: int, version: int) -> Transaction:
        """Return what ``to_bytes`` wrote.

        Raises:
            BadArgumentsError: the znode is no record of a transaction.
        """
        try:
            fields = json.loads(data)
            found = cls(**fields, number=number, version=version)
            is_one = (
                found.state in get_args(State)
                and isinstance(found.fencing_token, int)
                and bool(found.sites)
                and set(found.sites.values()) <= set(get_args(SiteState))
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            is_one = False
        if not is_one:
            raise BadArgumentsError(f"{path}: expected a transaction, found {data[:60]!r}")
        return found
