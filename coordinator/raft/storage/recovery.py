"""The opening of the log: a new one is begun, or the existing one is read back.

In this order, so that dying at any step leaves something the next start understands:

1. Unfinished files (``*.tmp``) are removed, and segments that the term file no longer needs.
2. Nothing there at all is a new member: term file first, then the first segment, then the term
   file again, which from then on says that the segment must be there. Segments without a term
   file, or fewer segments than it names, are refused: a member that forgot its vote or its log
   must not take part.
3. What a start that died had copied of the log's tail is put back. The segments are replayed, the
   torn tail of the last one is cut, and what is kept is made stable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coordinator.errors import StorageError
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage import segments, tail_copy, watermark
from coordinator.raft.storage.disk import Disk, DiskFile, join
from coordinator.raft.storage.segments import Replay, Segment


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log as found, all of it stable; ``file`` is its last segment, open for appending."""

    term: term.TermState
    segments: list[Segment]
    file: DiskFile
    replay: Replay


def recover(disk: Disk, directory: str, draw_salt: Callable[[], int]) -> Recovered:
    """Return the log in ``directory``, which must be there and locked."""
    for name in disk.list_directory(directory):
        if name.endswith(segments.TEMPORARY_SUFFIX):
            disk.remove(join(directory, name))
    paths = segments.list_segments(disk, directory)
    state = term.load(disk, directory)
    if state is None:
        if paths:
            raise StorageError(
                f"{join(directory, term.NAME)}: expected beside the log, found nothing; this "
                "member's term and vote are lost, so it must not vote: replace the member",
                path=join(directory, term.NAME),
            )
        state = term.TermState()
        term.save(disk, directory, state)
    unneeded = [number for number in sorted(paths) if number < state.first_sequence]
    if unneeded:
        # The process that wrote the term file may have died before its name was stable.
        disk.sync_directory(directory)
    for sequence in unneeded:
        disk.remove(paths.pop(sequence))
    if not paths and state.last_sequence < state.first_sequence:
        created = segments.create(disk, directory, state.first_sequence, 0, draw_salt())
        paths[created.sequence] = created.path
    replay, file = _read_back(disk, directory, state, paths)
    disk.sync_directory(directory)
    last_sequence = replay.segments[-1].sequence
    if last_sequence > state.last_sequence:
        state = replace(state, last_sequence=last_sequence)
        term.save(disk, directory, state)
    term.prepare(disk, directory)
    return Recovered(state, replay.segments, file, replay)


def _read_back(
    disk: Disk, directory: str, state: term.TermState, paths: dict[int, str]
) -> tuple[Replay, DiskFile]:
    stable_sequence, stable_bytes = watermark.load(disk, directory)
    first, last = state.first_sequence, max(state.last_sequence, stable_sequence, *paths)
    missing = [sequence for sequence in range(first, last + 1) if sequence not in paths]
    if missing:
        raise StorageError(
            f"{directory}: expected the segments {first} to {last}, found {sorted(paths)}; "
            f"missing {missing}: this member must be replaced",
            path=directory,
        )
    tail_copy.restore(disk, directory, last, paths[last])
    replay = Replay()
    data = b""
    for sequence in range(first, last + 1):
        data = disk.read(paths[sequence])
        known = stable_bytes if sequence == stable_sequence else 0
        replay.read(
            paths[sequence], sequence, data, stable_bytes=known if sequence == last else None
        )
    if replay.entries and replay.entries[-1][2] > state.term:
        path = join(directory, term.NAME)
        raise StorageError(
            f"{path}: expected term {replay.entries[-1][2]} or later, as in the log, found "
            f"{state.term}: an old copy? This member must be replaced",
            path=path,
        )
    file = segments.open_last(disk, paths[last])
    try:
        known = stable_bytes if last == stable_sequence else 0
        segments.repair_tail(disk, directory, file, replay, data, stable_bytes=known)
    except StorageError:
        file.close()
        raise
    return replay, file
