"""The room for znodes that is left, and for whom the last of it is kept.

The last of a limit is kept for locks and elections, the very last for operators. While much is left
nobody is asked for whom anything is kept: so each create looks at two numbers only.
"""

from __future__ import annotations

from typing import Final

from coordinator.model.limits import MachineLimits
from coordinator.state.access.quotas import Quotas
from coordinator.state.tree import Tree
from coordinator.state.znode_refusals import (
    beyond_limit,
    reserved_for_locks,
    reserved_for_operators,
)

_BOUNDED: Final = ("znodes_max", "state_bytes_max")


class Room:
    """Checks that the tree has room for what a command adds, within the limits and quotas."""

    def __init__(self, tree: Tree, quotas: Quotas, limits: MachineLimits) -> None:
        self._tree = tree
        self._quotas = quotas
        self._limits = limits
        kept = [min(limits.ordinary_max(name), limits.client_max(name)) for name in _BOUNDED]
        self._znodes_for_all, self._bytes_for_all = kept

    def check_create(self, path: str, size: int, *, is_ordinary: bool) -> None:
        """Check that a znode of this size may be created; if it is not ordinary, it may use what
        is kept for locks. Raises QuotaExceeded."""
        tree = self._tree
        znodes, total = len(tree) + 1, tree.state_bytes + size
        if znodes > self._znodes_for_all or total > self._bytes_for_all:
            for limit, after in zip(_BOUNDED, (znodes, total), strict=True):
                if after > getattr(self._limits, limit):
                    raise beyond_limit(path, limit, self._limits)
            for limit, after in zip(_BOUNDED, (znodes, total), strict=True):
                self._check_kept(path, limit, after, "create", is_ordinary=is_ordinary)
        if tree.identity:
            self._quotas.check_create(path, size)

    def check_growth(self, path: str, identity: str, grown: int) -> None:
        """Check that a znode of ``identity`` may grow by so much; raises QuotaExceeded."""
        total = self._tree.state_bytes + grown
        if total > self._bytes_for_all:
            if total > self._limits.state_bytes_max:
                raise beyond_limit(path, "state_bytes_max", self._limits, verb="set")
            self._check_kept(path, "state_bytes_max", total, "set", is_ordinary=True)
        if identity:
            self._quotas.check_growth(path, identity, grown)

    def _check_kept(
        self, path: str, limit: str, after: int, verb: str, *, is_ordinary: bool
    ) -> None:
        limits, is_known = self._limits, bool(self._tree.identity)
        is_beyond = is_ordinary and after > limits.ordinary_max(limit)
        is_last = is_known and after > limits.client_max(limit)
        if not (is_beyond or is_last) or self._quotas.is_operator():
            return
        if is_beyond:
            raise reserved_for_locks(path, limit, limits, verb=verb)
        raise reserved_for_operators(path, limit, limits, verb=verb)
