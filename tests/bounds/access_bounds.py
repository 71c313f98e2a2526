"""Every bound of access rights in the state: names, rules, roles, identities, credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coordinator.model import access
from coordinator.model.access import Rule, Verb
from coordinator.state.commands import (
    AddToken,
    Create,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    SetLimits,
)
from coordinator.state.tree import state_bytes_of
from tests.bounds.machine_bounds import Bound, Room
from tests.state.test_quotas import Room as QuotaRoom

_READ = (Verb.READ,)


def rules(count: int, begin: int = 0) -> tuple[Rule, ...]:
    """Return so many different rules."""
    return tuple([Rule(f"/p{number}", _READ) for number in range(begin, begin + count)])


def token(number: int, identity: str = "i", label: str = "") -> AddToken:
    """Return the command that gives an identity one of its tokens."""
    return AddToken(identity, token_id=f"token{number:04d}", digest=bytes(32), label=label)


def last_of(make: Callable[[int], Operation], *first: Operation) -> Callable[[int], bool]:
    """Say whether the ``count``-th of several is taken, in a room where ``first`` was done."""

    def accepts(count: int) -> bool:
        room = Room()
        for each in first:
            assert room.takes(each)
        return [room.takes(make(number)) for number in range(count)][-1]

    return accepts


def takes_rules(count: int) -> bool:
    """Say whether all roles together may have so many rules."""
    room, of_one = Room(), access.RULES_PER_ROLE_MAX
    for number in range(count // of_one):
        assert room.takes(PutRole(f"r{number}", rules(of_one)))
    rest = count % of_one
    return not rest or room.takes(PutRole("last", rules(rest)))


def takes_roles_of_one(count: int) -> bool:
    """Say whether an identity may have so many roles."""
    room, names = Room(), tuple([f"r{number}" for number in range(count)])
    for name in names:
        room.do(PutRole(name, rules(1)))
    return room.takes(PutIdentity("i", names))


def _limited(**limits: int) -> QuotaRoom:
    room = QuotaRoom()
    room.do(SetLimits(tuple(limits.items())))
    return room


def accepts_znode_of_an_identity(count: int) -> bool:
    room = _limited(znodes_per_identity_max=5)
    return [room.do(Create(f"/n{n}"), room.web).refusal is None for n in range(count)][-1]


def accepts_bytes_of_an_identity(count: int) -> bool:
    room = _limited(bytes_per_identity_max=2_000)
    data = b"x" * (count - state_bytes_of("/a", b""))
    return room.do(Create("/a", data), room.web).refusal is None


def accepts_waiter_of_an_identity(count: int) -> bool:
    room = _limited(waiters_per_identity_max=5)
    for session_id, caller in (("s1", room.pay), ("s2", room.web)):
        room.do(OpenSession(session_id, 10_000), caller)
    room.enter("s1", room.pay)
    return [room.enter("s2", room.web).refusal is None for _ in range(count)][-1]


def accepts_beside_operators(count: int) -> bool:
    """Say whether the ``count``-th znode, the root included, is there when half are kept."""
    room = _limited(znodes_max=20, client_percent_max=50)
    return [room.do(Create(f"/n{n}"), room.web).refusal is None for n in range(1, count)][-1]


def of_access() -> Iterator[Bound]:
    """One bound for each constant."""
    named, longest = "access.", access.SUBJECT_CHARACTERS_MAX
    yield Bound(f"{named}NAME_CHARACTERS_MAX", access.NAME_CHARACTERS_MAX, lambda n: Room().takes(
        PutRole("n" * n, rules(1))))  # fmt: skip
    yield Bound(f"{named}PREFIX_BYTES_MAX", access.PREFIX_BYTES_MAX, lambda n: Room().takes(
        PutRole("r", (Rule("/" + "p" * (n - 1), _READ),))))  # fmt: skip
    yield Bound(f"{named}RULES_PER_ROLE_MAX", access.RULES_PER_ROLE_MAX, lambda n: Room().takes(
        PutRole("r", rules(n))))  # fmt: skip
    yield Bound(f"{named}RULES_MAX", access.RULES_MAX, takes_rules)
    yield Bound(f"{named}ROLES_MAX", access.ROLES_MAX, last_of(
        lambda n: PutRole(f"r{n}", rules(1))))  # fmt: skip
    yield Bound(f"{named}ROLES_PER_IDENTITY_MAX", access.ROLES_PER_IDENTITY_MAX, takes_roles_of_one)
    yield Bound(f"{named}IDENTITIES_MAX", access.IDENTITIES_MAX, last_of(
        lambda n: PutIdentity(f"i{n}", ())))  # fmt: skip
    yield Bound(f"{named}TOKENS_PER_IDENTITY_MAX", access.TOKENS_PER_IDENTITY_MAX, last_of(
        token, PutIdentity("i", ())))  # fmt: skip
    yield Bound(f"{named}LABEL_CHARACTERS_MAX", access.LABEL_CHARACTERS_MAX, lambda n: last_of(
        lambda _: token(0, label="l" * n), PutIdentity("i", ()))(1))  # fmt: skip
    yield Bound(
        f"{named}SUBJECTS_PER_IDENTITY_MAX",
        access.SUBJECTS_PER_IDENTITY_MAX,
        lambda n: Room().takes(
            PutIdentity("i", roles=(), subjects=tuple([f"cert:{each}" for each in range(n)]))
        ),
    )
    yield Bound(f"{named}SUBJECT_CHARACTERS_MAX", longest, lambda n: Room().takes(
        PutIdentity("i", roles=(), subjects=("cert:" + "s" * n,))))  # fmt: skip
    yield Bound(f"{named}QUOTA_MAX", access.QUOTA_MAX, lambda n: Room().takes(
        PutIdentity("i", roles=(), subjects=(), quota=(("znodes", n),))))  # fmt: skip
    limit = "MachineLimits."
    yield Bound(f"{limit}znodes_per_identity_max", 5, accepts_znode_of_an_identity)
    yield Bound(f"{limit}bytes_per_identity_max", 2_000, accepts_bytes_of_an_identity)
    yield Bound(f"{limit}waiters_per_identity_max", 5, accepts_waiter_of_an_identity)
    yield Bound(f"{limit}client_percent_max", 10, accepts_beside_operators)


BOUNDS = tuple(of_access())
