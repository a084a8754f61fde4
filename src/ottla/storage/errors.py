"""Why storage cannot start."""

from __future__ import annotations


class LogDirError(Exception):
    """A log folder that this broker cannot use; the message is one line for the person who starts the broker."""
