"""Several operations as one: multi, and the guarded write with its conditions and two branches.

1. Later operations see what earlier ones did; all share one zxid; events keep their order.
2. The first refusal refuses all and carries ``operation_index``; the caller rolls back.
3. If a condition does not hold, the other branch runs. A malformed condition refuses the command
   with ``condition_index``, even after one that does not hold.
"""

from __future__ import annotations

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    DataTooLargeError,
    QuotaExceededError,
)
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import Guarded, Multi, ZnodeOperation
from coordinator.state.locks.operations import (
    BY_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    check_text,
)
from coordinator.state.operations import ZnodeOperations
from coordinator.state.outcomes import GuardedDone, MultiDone, ReadDone, ZnodeResult


class MultiOperations:
    """Runs several znode operations in the transaction of one command."""

    def __init__(self, operations: ZnodeOperations, limits: MachineLimits) -> None:
        self._operations = operations
        self._limits = limits

    def multi(self, operation: Multi) -> MultiDone:
        """Run all operations in order; raises the first refusal."""
        self._check_count(len(operation.operations))
        check_text("by", operation.by, BY_CHARACTERS_MAX)
        check_text("reason", operation.reason, REASON_CHARACTERS_MAX)
        return MultiDone(self._run_all(operation.operations))

    def guarded(self, operation: Guarded) -> GuardedDone:
        """Run the branch that the conditions choose; raises its first refusal."""
        then, otherwise = operation.then, operation.otherwise
        self._check_count(len(operation.conditions) + len(then) + len(otherwise))
        is_then = self._holds(operation)
        try:
            results = self._run_all(then if is_then else otherwise)
        except CoordinatorError as error:
            error.fields["branch"] = "then" if is_then else "otherwise"
            raise
        return GuardedDone(is_then, results)

    def _holds(self, operation: Guarded) -> bool:
        is_then = True
        for index, condition in enumerate(operation.conditions):
            try:
                self._operations.check(condition)
            except BadArgumentsError as error:
                error.fields["condition_index"] = index
                raise
            except CoordinatorError:
                is_then = False
        return is_then

    def _run_all(self, operations: tuple[ZnodeOperation, ...]) -> tuple[ZnodeResult, ...]:
        results: list[ZnodeResult] = []
        read_bytes = 0
        for index, operation in enumerate(operations):
            try:
                result = self._operations.run(operation)
                if type(result) is ReadDone:
                    read_bytes += len(result.data)
                    if len(result.data) != read_bytes:
                        self._check_read(operation.path, read_bytes)
            except CoordinatorError as error:
                error.fields["operation_index"] = index
                raise
            results.append(result)
        return tuple(results)

    def _check_read(self, path: str, read_bytes: int) -> None:
        """Bound what several reads return together: it is sent and remembered as one outcome.

        The data of one znode was allowed when it was written, and is read under any limit."""
        if read_bytes > self._limits.data_bytes_max:
            raise DataTooLargeError(
                f"read {path}: expected the reads of one command to return at most "
                f"{self._limits.data_bytes_max} bytes together, found {read_bytes}",
                path=path,
                data_bytes_max=self._limits.data_bytes_max,
                data_length=read_bytes,
            )

    def _check_count(self, count: int) -> None:
        maximum = self._limits.operations_per_multi_max
        if count > maximum:
            raise QuotaExceededError(
                f"multi: expected at most {maximum} operations, found {count}",
                limit="operations_per_multi_max",
                maximum=maximum,
            )
