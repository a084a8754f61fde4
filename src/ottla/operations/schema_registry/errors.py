"""Errors of schemas and registries."""

from __future__ import annotations

from ottla.operations.errors import OperationError


class SchemaError(OperationError):
    """An unavailable schema, or data that does not match it; str() is a sentence."""


class RegistryError(SchemaError):
    """The registry rejected the request; `code` is Confluent's error code (40401, 409, 42201, …)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class UnreachableError(SchemaError):
    """The registry cannot be reached, or fails for every schema."""
