"""Why storage cannot start."""

from __future__ import annotations


class LogDirError(Exception):
    """A log folder that this broker cannot use; the message is one line for the person who starts the broker."""


class RecompressionNeededError(Exception):
    """The topic wants another codec, and this batch is too large for that to be done while everybody waits: put it
    through Log.recompressed() in a worker thread, and append what comes out."""


class FolderUnusableError(LogDirError):
    """The disk does not let us use the folder: the broker can go on without it, if it has others."""
