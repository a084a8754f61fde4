"""Errors of operations, shown by CLI, console and alerts alike."""

from __future__ import annotations


class OperationError(Exception):
    """The operation cannot be done; str() is one line with the cause and the remedy."""


class WrongInputError(OperationError):
    """The input is invalid, whatever the state of the cluster."""
