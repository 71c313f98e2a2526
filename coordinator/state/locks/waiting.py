"""The number of waiting contenders by the identity that entered them: what quotas bound."""

from __future__ import annotations

from coordinator.state.locks.contender import ContenderRecord


class Waiting(dict[str, int]):
    """The counts; of identities alone that have waiters."""

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def arrive(self, contender: ContenderRecord) -> None:
        """Count a contender that has come, unless it holds."""
        identity = contender.identity
        if identity and contender.granted_zxid is None:
            self[identity] = self.get(identity, 0) + 1

    def leave(self, contender: ContenderRecord) -> None:
        """Count no more a contender, as it was while it waited, that is granted or goes."""
        identity = contender.identity
        if identity and contender.granted_zxid is None:
            count = self[identity] - 1
            if count:
                self[identity] = count
            else:
                del self[identity]
