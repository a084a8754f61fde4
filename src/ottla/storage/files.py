"""Everything that storage does to a disk goes through this module: the one place where a test can make a disk fail.

The plain names (`write_at`, `sync`, ...) are module attributes that callers look up at every call: replace one, and
all of storage sees a disk that is full, torn or dead. Nothing else in this package calls os.pwrite and its kind; a test
sees to that. What only reads (os.pread, os.scandir) needs no door.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator

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

CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
READ_WRITE_FLAGS = os.O_RDWR | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC
FILE_MODE = 0o644
FALLOC_KEEP_SIZE = 1

# These get better by themselves; every other error on writing may mean that stored bytes are at risk.
PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})

open_file = os.open
close = os.close
replace_descriptor = os.dup2
write_at = os.pwrite
copy_range = os.copy_file_range
truncate = os.ftruncate
sync = os.fdatasync  # the size that is needed to read the data back is synced with it; other times are not
rename = os.rename
link = os.link
unlink = os.unlink
make_directory = os.mkdir
make_directories = os.makedirs
set_times = os.utime


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """The file of a segment, named after the segment's first offset as Kafka names it."""
    return f"{directory}/{base_offset:020d}{suffix}"


def remove_tree(path: str, ignore_errors: bool = False) -> None:
    """A folder with everything in it."""
    shutil.rmtree(path, ignore_errors)


def write_whole(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of `data`; a short write goes on until it is complete or fails with an OSError."""
    view = memoryview(data)
    while view:
        written = write_at(descriptor, view, position)
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        position += written
        view = view[written:]


def reserve(descriptor: int, size: int) -> None:
    """Set room on the disk aside for a file that will grow to this size; its length stays what it is.

    Where the system or the file system cannot do that, nothing happens: the file then takes its room as it grows.
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


def read_whole(path: str) -> bytes:
    with opened(path, READ_FLAGS) as descriptor:
        chunks = []
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def replace_file(path: str, data: bytes, *, durable: bool) -> None:
    """Put a new content under this name: a reader finds the old file or the new one, never a half of one.

    With `durable` it also survives a power cut once this returns; without, a later sync of the folder and of the
    file (or a rebuild after the cut) has to care for that.
    """
    temporary = path + TEMPORARY_SUFFIX
    with opened(temporary, CREATE_FLAGS | os.O_TRUNC) as descriptor:
        write_whole(descriptor, data, 0)
        if durable:
            sync(descriptor)
    rename(temporary, path)
    if durable:
        sync_path(os.path.dirname(path))


def sync_path(path: str) -> None:
    """Make a folder's entries, or a file that is not open, survive a power cut."""
    with opened(path, READ_FLAGS) as descriptor:
        sync(descriptor)


def remove_if_there(path: str) -> bool:
    try:
        unlink(path)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    descriptor = open_file(path, flags, FILE_MODE)
    try:
        yield descriptor
    finally:
        close(descriptor)


def is_passing(error: OSError) -> bool:
    """Whether the disk is full, or the process is short of something: worth another try later."""
    return error.errno in PASSING_ERRORS
