"""What keeps an operation from being done, for whoever shows it: a tool, a page, an alert."""

from __future__ import annotations


class OperationError(Exception):
    """What was asked cannot be done; str() is one line with the cause and the cure."""


class WrongInputError(OperationError):
    """What was asked makes no sense, whatever state the cluster is in."""
