"""Exceptions of storage."""

from __future__ import annotations


class LogDirError(Exception):
    """A log directory that this broker cannot use; the message is one line for the operator."""


class RecompressionNeededError(Exception):
    """The topic has another codec, and recompressing this batch would block the event loop.

    Call Log.recompressed() in a worker thread and append its result.
    """


class FolderUnusableError(LogDirError):
    """The disk does not allow the use of a log directory; the broker can continue with its other ones."""
