"""What can go wrong with schemas and their registry."""

from __future__ import annotations

from ottla.operations.errors import OperationError


class SchemaError(OperationError):
    """A schema that cannot be had, or data that do not fit it; str() is a sentence."""


class RegistryError(SchemaError):
    """The registry has answered that it will not; `code` is Confluent's number (40401, 409, 42201, …)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class UnreachableError(SchemaError):
    """The registry as a whole does not answer, or not as a registry does: not a matter of one schema."""
