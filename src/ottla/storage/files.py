"""All disk writes of storage.

Tests replace these module attributes (`write_at`, `sync` and others) to simulate a disk that is full, fails, or writes
partially: callers look them up at every call. No other module of this package calls os.pwrite and similar functions,
and a test checks that. Functions that only read (os.pread, os.scandir) are called directly.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import Final

OFFSET_DIGITS = 20
LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
PROBE_FILE: Final = "ottla.room"
PROBE_BYTES: Final = 1 << 20  # as large as the largest batch of most topics

CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
READ_WRITE_FLAGS = os.O_RDWR | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC
FILE_MODE = 0o644
FALLOC_KEEP_SIZE = 1

# Transient errors; after any other write error stored data may be damaged.
TRANSIENT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})

open_file = os.open
close = os.close
replace_descriptor = os.dup2
write_at = os.pwrite
copy_range = os.copy_file_range
truncate = os.ftruncate
sync = os.fdatasync  # fdatasync also syncs the file size, which is needed to read the data
rename = os.rename
link = os.link
unlink = os.unlink
make_directory = os.mkdir
make_directories = os.makedirs
set_times = os.utime


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a segment's file, named after the base offset as in Kafka."""
    return f"{directory}/{base_offset:020d}{suffix}"


def remove_tree(path: str, ignore_errors: bool = False) -> None:
    """Remove a directory with its contents."""
    shutil.rmtree(path, ignore_errors)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of `data`; short writes are continued until OSError."""
    view = memoryview(data)
    while view:
        written = write_at(descriptor, view, position)
        if written <= 0:
            raise OSError(errno.EIO, "the write returned no bytes")
        position += written
        view = view[written:]


def preallocate(descriptor: int, size: int) -> None:
    """Preallocate disk space for a file; its length does not change.

    A file system without support ignores this: the file then grows with its data.
    """
    import ctypes  # noqa: PLC0415 (few need it, and it takes its time to load)

    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None:
        return
    failed = fallocate(descriptor, FALLOC_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)) != 0
    code = ctypes.get_errno()
    if failed and code not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(code, os.strerror(code))


def create_empty(path: str) -> None:
    close(open_file(path, CREATE_FLAGS, FILE_MODE))


def read_file(path: str) -> bytes:
    with open_descriptor(path, READ_FLAGS) as descriptor:
        chunks = []
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def replace_file(path: str, data: bytes, *, is_durable: bool) -> None:
    """Replace a file atomically: a reader finds the old or the new content.

    With `is_durable` the new content also survives a power cut once this returns. Without it, a later sync of the file
    and the directory must follow, or the content must be rebuilt after a power cut.
    """
    temporary = path + TEMPORARY_SUFFIX
    with open_descriptor(temporary, CREATE_FLAGS | os.O_TRUNC) as descriptor:
        write_all(descriptor, data, 0)
        if is_durable:
            sync(descriptor)
    rename(temporary, path)
    if is_durable:
        sync_path(os.path.dirname(path))


def sync_path(path: str) -> None:
    """Sync a directory's entries, or a file that is not open."""
    with open_descriptor(path, READ_FLAGS) as descriptor:
        sync(descriptor)


def remove_if_exists(path: str) -> bool:
    try:
        unlink(path)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def open_descriptor(path: str, flags: int) -> Iterator[int]:
    descriptor = open_file(path, flags, FILE_MODE)
    try:
        yield descriptor
    finally:
        close(descriptor)


def is_transient(error: OSError) -> bool:
    """Return whether the error is transient:

    the disk is full, or the process has too few resources. A retry may succeed.
    """
    return error.errno in TRANSIENT_ERRORS


def has_space(path: str) -> bool:
    """Return whether a disk has space again; in any thread.

    Writes a file to this directory and removes it: statvfs() does not consider quotas.
    """
    probe = f"{path}/{PROBE_FILE}"
    try:
        with open_descriptor(probe, CREATE_FLAGS | os.O_TRUNC) as descriptor:
            write_all(descriptor, bytes(PROBE_BYTES), 0)
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            remove_if_exists(probe)
    return True
