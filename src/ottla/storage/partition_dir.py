"""The files in a partition's directory, and the removal of temporary files before the log is opened.

A crash may leave temporary files. `.cleaned` (unfinished) and `.deleted` files are removed. `.swap` is a finished,
synced replacement for older segments: it replaces them, unless a `.cleaned` file of the same segment shows that it was
incomplete. Apache Kafka follows the same rules and handles our files.
"""

from __future__ import annotations

import logging
import os

from ottla.storage import files
from ottla.storage.scan import BatchScan

logger = logging.getLogger("ottla.storage.partition_dir")

TEMPORARY_SUFFIXES = (files.CLEANED_SUFFIX, files.DELETED_SUFFIX, files.TEMPORARY_SUFFIX)
INDEX_SUFFIXES = (files.INDEX_SUFFIX, files.TIME_INDEX_SUFFIX, files.TRANSACTION_INDEX_SUFFIX)


class PartitionDir:
    """Base offsets of the segments and of the snapshots, and the sizes of all segment files."""

    __slots__ = ("directory", "segments", "sizes", "snapshots")

    def __init__(self, directory: str, sizes: dict[str, int]) -> None:
        self.directory = directory
        self.sizes = sizes
        self.segments = base_offsets_of(sizes, files.LOG_SUFFIX)
        self.snapshots = base_offsets_of(sizes, files.SNAPSHOT_SUFFIX)

    def size(self, base_offset: int, suffix: str) -> int:
        """Size of a segment's file, -1 if it does not exist."""
        return self.sizes.get(f"{base_offset:020d}{suffix}", -1)

    def __repr__(self) -> str:
        return f"<PartitionDir {self.directory}, segments {self.segments}, snapshots {self.snapshots}>"


def read_partition_dir(directory: str) -> PartitionDir:
    """List the directory, after temporary files of a crash are removed."""
    sizes = list_files(directory)
    if any(name.endswith((*TEMPORARY_SUFFIXES, files.SWAP_SUFFIX)) for name in sizes):
        remove_temporary_files(directory, sizes)
        sizes = list_files(directory)
    folder = PartitionDir(directory, sizes)
    remove_orphaned_indexes(folder)
    return folder


def list_files(directory: str) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def bytes_from_offset(directory: str, offset: int) -> int:
    """Return the total size of the segments that may contain records at or past this offset."""
    sizes = list_files(directory)
    bases = base_offsets_of(sizes, files.LOG_SUFFIX)
    first = max((base for base in bases if base <= offset), default=0)
    return sum(sizes[f"{base:020d}{files.LOG_SUFFIX}"] for base in bases if base >= first)


def remove_temporary_files(directory: str, sizes: dict[str, int]) -> None:
    """Remove or complete temporary files.

    A replacement is renamed to `.swap` with its log file last, and loses that name with its log file first. A `.swap`
    log file is therefore complete with its indexes, and a `.swap` index alone belongs to a log file that has its final
    name.
    """
    unfinished = {offset_of(name) for name in sizes if name.endswith(files.CLEANED_SUFFIX)}
    for name in sizes:
        is_unfinished = name.endswith(files.SWAP_SUFFIX) and offset_of(name) in unfinished
        if is_unfinished or name.endswith(TEMPORARY_SUFFIXES):
            files.unlink(f"{directory}/{name}")
            logger.info("Removed the temporary file %s", f"{directory}/{name}")
    for name in sorted(list_files(directory)):
        if name.endswith(files.LOG_SUFFIX + files.SWAP_SUFFIX):
            complete_swap(directory, offset_of(name), sizes[name])
    for name in list_files(directory):
        if name.endswith(files.SWAP_SUFFIX):
            complete_index_swap(directory, name)


def complete_swap(directory: str, base_offset: int, size: int) -> None:
    """Replace the segments that a finished replacement covers."""
    final_path = files.segment_path(directory, base_offset, files.LOG_SUFFIX)
    path = final_path + files.SWAP_SUFFIX
    last_offset = base_offset  # even an empty replacement replaces the first segment
    with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
        scan = BatchScan(descriptor, 0, size, True)
        while scan.advance():
            last_offset = scan.last_offset
    if scan.problem is not None:
        logger.error("Ignored %s, a replacement of older segments: %s", path, scan.problem)
        for suffix in (files.LOG_SUFFIX, *INDEX_SUFFIXES):
            files.remove_if_exists(files.segment_path(directory, base_offset, suffix) + files.SWAP_SUFFIX)
        return
    names = list_files(directory)
    for name in names:
        is_covered = base_offset <= offset_of(name) <= last_offset
        # Indexes are rebuilt. A transaction index without a `.swap` file is itself the replacement.
        is_new = name.endswith(files.TRANSACTION_INDEX_SUFFIX) and name + files.SWAP_SUFFIX not in names
        is_new = is_new and offset_of(name) == base_offset
        if is_covered and not is_new and name.endswith((files.LOG_SUFFIX, *INDEX_SUFFIXES)):
            files.unlink(f"{directory}/{name}")
    files.rename(path, final_path)
    logger.info("Completed the replacement of segments by %s", path)


def complete_index_swap(directory: str, name: str) -> None:
    """Rename the index of a replacement whose log file has its final name."""
    path = f"{directory}/{name}"
    log_path = files.segment_path(directory, offset_of(name), files.LOG_SUFFIX)
    if os.path.exists(log_path) and not os.path.exists(path.removesuffix(files.SWAP_SUFFIX)):
        files.rename(path, path.removesuffix(files.SWAP_SUFFIX))
    else:
        files.remove_if_exists(path)


def offset_of(name: str) -> int:
    """Return the base offset in the name of a segment's file, -1 for other names."""
    digits = name[: files.OFFSET_DIGITS]
    return int(digits) if len(digits) == files.OFFSET_DIGITS and digits.isdecimal() else -1


def remove_orphaned_indexes(folder: PartitionDir) -> None:
    """Delete index files without a log file."""
    bases = set(folder.segments)
    for suffix in INDEX_SUFFIXES:
        for base_offset in base_offsets_of(folder.sizes, suffix):
            if base_offset not in bases:
                path = files.segment_path(folder.directory, base_offset, suffix)
                logger.warning("Found an orphaned index file %s, with no log file; removing it", path)
                files.unlink(path)


def base_offsets_of(names: dict[str, int], suffix: str) -> list[int]:
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if len(stem) == files.OFFSET_DIGITS and stem.isdecimal())
