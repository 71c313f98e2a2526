"""The upgrade of a cluster: which member runs which release, and what is to be done next."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.fields import Count, described


class UpgradeMember(Struct, frozen=True):
    """One configured member; without a release, and with the reason, if it did not answer."""

    member_id: str
    release: str = ""
    level_oldest: Annotated[Count, described("the oldest level that its release reads")] = 0
    level_newest: Annotated[Count, described("the newest level that its release reads")] = 0
    silence: str = ""


class UpgradeView(Struct, frozen=True):
    """The reply of GET /v1/upgrade and of POST /v1/upgrade/finish."""

    level: Annotated[Count, described("of the cluster: decides what members write")]
    can_finish: Annotated[bool, described("whether all members read the level after this one")]
    members: tuple[UpgradeMember, ...]
    text: Annotated[str, described("how far the upgrade is, in a sentence")]
    todo: Annotated[str, described("what to do next; empty: nothing")] = ""


class FinishUpgrade(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/upgrade/finish. ``by`` says who does it, for people."""

    by: str = ""
