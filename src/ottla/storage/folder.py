"""What stands in the folder of a partition, and putting it in order before the log is opened.

A crash may leave files of work that was under way: `.cleaned` was not finished and `.deleted` was not needed any more,
both go. `.swap` is a finished, synced replacement for older segments: it takes their place, unless a `.cleaned` file
of the same segment shows that it was not complete. Apache Kafka follows the same rules and understands our leftovers.
"""

from __future__ import annotations

import logging
import os

from ottla.storage import files
from ottla.storage.scan import BatchScan

logger = logging.getLogger("ottla.storage.folder")

LEFTOVER_SUFFIXES = (files.CLEANED_SUFFIX, files.DELETED_SUFFIX, files.TEMPORARY_SUFFIX)
INDEX_SUFFIXES = (files.INDEX_SUFFIX, files.TIME_INDEX_SUFFIX, files.TRANSACTION_INDEX_SUFFIX)


class Folder:
    """Base offsets of the segments and of the snapshots, and the sizes of all files of segments."""

    __slots__ = ("directory", "segments", "sizes", "snapshots")

    def __init__(self, directory: str, sizes: dict[str, int]) -> None:
        self.directory = directory
        self.sizes = sizes
        self.segments = sorted_offsets(sizes, files.LOG_SUFFIX)
        self.snapshots = sorted_offsets(sizes, files.SNAPSHOT_SUFFIX)

    def size(self, base_offset: int, suffix: str) -> int:
        """Size of a file of a segment, -1 if it is not there."""
        return self.sizes.get(f"{base_offset:020d}{suffix}", -1)

    def __repr__(self) -> str:
        return f"<Folder {self.directory}, segments {self.segments}, snapshots {self.snapshots}>"


def read_folder(directory: str) -> Folder:
    """List the folder; leftovers of a crash are cleared away first."""
    sizes = list_files(directory)
    if any(name.endswith((*LEFTOVER_SUFFIXES, files.SWAP_SUFFIX)) for name in sizes):
        clear_leftovers(directory, sizes)
        sizes = list_files(directory)
    folder = Folder(directory, sizes)
    remove_orphans(folder)
    return folder


def list_files(directory: str) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def bytes_past(directory: str, offset: int) -> int:
    """The size of all segments that may hold records at or past this offset."""
    sizes = list_files(directory)
    bases = sorted_offsets(sizes, files.LOG_SUFFIX)
    first = max((base for base in bases if base <= offset), default=0)
    return sum(sizes[f"{base:020d}{files.LOG_SUFFIX}"] for base in bases if base >= first)


def clear_leftovers(directory: str, sizes: dict[str, int]) -> None:
    """A replacement gets its names `.swap` with the log last and loses them with the log first: a log file of that
    name is complete with its indexes, an index alone is one whose log is in place already."""
    unfinished = {offset_of(name) for name in sizes if name.endswith(files.CLEANED_SUFFIX)}
    for name in sizes:
        is_unfinished = name.endswith(files.SWAP_SUFFIX) and offset_of(name) in unfinished
        if is_unfinished or name.endswith(LEFTOVER_SUFFIXES):
            files.unlink(f"{directory}/{name}")
            logger.info("Removed %s, a leftover of work that was under way", f"{directory}/{name}")
    for name in sorted(list_files(directory)):
        if name.endswith(files.LOG_SUFFIX + files.SWAP_SUFFIX):
            complete_swap(directory, offset_of(name), sizes[name])
    for name in list_files(directory):
        if name.endswith(files.SWAP_SUFFIX):
            place_index(directory, name)


def complete_swap(directory: str, base_offset: int, size: int) -> None:
    """Put a finished replacement into the place of the segments that it covers."""
    final_path = files.segment_path(directory, base_offset, files.LOG_SUFFIX)
    path = final_path + files.SWAP_SUFFIX
    last_offset = base_offset  # even if nothing is left of the segments, the first of them is replaced
    with files.opened(path, files.READ_FLAGS) as descriptor:
        scan = BatchScan(descriptor, 0, size, True)
        while scan.advance():
            last_offset = scan.last_offset
    if scan.problem is not None:
        logger.error("Left out %s, which was to replace older segments: %s", path, scan.problem)
        for suffix in (files.LOG_SUFFIX, *INDEX_SUFFIXES):
            files.remove_if_there(files.segment_path(directory, base_offset, suffix) + files.SWAP_SUFFIX)
        return
    names = list_files(directory)
    for name in names:
        is_covered = base_offset <= offset_of(name) <= last_offset
        # Other indexes are made anew. A transaction index without a replacement is the replacement.
        is_new = name.endswith(files.TRANSACTION_INDEX_SUFFIX) and name + files.SWAP_SUFFIX not in names
        is_new = is_new and offset_of(name) == base_offset
        if is_covered and not is_new and name.endswith((files.LOG_SUFFIX, *INDEX_SUFFIXES)):
            files.unlink(f"{directory}/{name}")
    files.rename(path, final_path)
    logger.info("Completed the replacement of segments by %s", path)


def place_index(directory: str, name: str) -> None:
    """The index of a replacement whose log is in place gets its final name."""
    path = f"{directory}/{name}"
    log_path = files.segment_path(directory, offset_of(name), files.LOG_SUFFIX)
    if os.path.exists(log_path) and not os.path.exists(path.removesuffix(files.SWAP_SUFFIX)):
        files.rename(path, path.removesuffix(files.SWAP_SUFFIX))
    else:
        files.remove_if_there(path)


def offset_of(name: str) -> int:
    """The offset that a segment's file is named after, -1 for other names."""
    digits = name[: files.OFFSET_DIGITS]
    return int(digits) if len(digits) == files.OFFSET_DIGITS and digits.isdecimal() else -1


def remove_orphans(folder: Folder) -> None:
    """Index files without a log file are of no use."""
    bases = set(folder.segments)
    for suffix in INDEX_SUFFIXES:
        for base_offset in sorted_offsets(folder.sizes, suffix):
            if base_offset not in bases:
                path = files.segment_path(folder.directory, base_offset, suffix)
                logger.warning("Found an orphaned index file %s, with no log file; removing it", path)
                files.unlink(path)


def sorted_offsets(names: dict[str, int], suffix: str) -> list[int]:
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if len(stem) == files.OFFSET_DIGITS and stem.isdecimal())
