"""The note in a data directory that its state differed from a quorum's: it is not started again.

It is written once, before the member stops answering, so that its next life does not answer from
the same data. A member that finds it refuses to start; it needs another data directory.
"""

from __future__ import annotations

import logging

from coordinator.errors import StorageError
from coordinator.raft.storage.disk import Disk, join, replace_file

NAME = "differs"
SENTENCE_BYTES_MAX = 4_096

logger = logging.getLogger(__name__)


def refuse_quarantined(disk: Disk, directory: str) -> None:
    """Raise StorageError if the data of ``directory`` must not be used any more."""
    path = join(directory, NAME)
    if disk.exists(path):
        found = disk.read(path)[:SENTENCE_BYTES_MAX].decode(errors="replace")
        raise StorageError(
            f"{directory}: expected data that agree with the other members', found the note "
            f"{NAME!r}: {found}",
            path=path,
        )


def quarantine(disk: Disk, directory: str, sentence: str) -> None:
    """Keep the data of ``directory`` from being used again, if there is a sentence that says why.

    Without room for it that is only logged."""
    if not sentence:
        return
    try:
        replace_file(disk, directory, NAME, sentence.encode()[:SENTENCE_BYTES_MAX])
    except StorageError as error:
        logger.error("%s: a restart would use these data again: %s", directory, error)
