"""The option --registry and the schema registry that a command uses."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Final

from ottla.cli.arguments import Argument
from ottla.cli.terminal import UsageError
from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import URL, address_of
from ottla.operations.schema_registry.errors import SchemaError

REGISTRY_VARIABLE: Final = "OTTLA_REGISTRY"
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"


# Accepted before and after a sub-command, so it has no default.
REGISTRY: Final = Argument(
    "--registry",
    default=argparse.SUPPRESS,
    metavar="URL",
    help=f"default: ${REGISTRY_VARIABLE}, {URL} of --command-config, or {DEFAULT_REGISTRY}",
)


def registry_of(
    options: argparse.Namespace, properties: Mapping[str, str], otherwise: str | None = DEFAULT_REGISTRY
) -> RegistryClient | None:
    """The registry of the options, environment or properties, else the one at `otherwise`. Raises UsageError."""
    given = getattr(options, "registry", None) or os.environ.get(REGISTRY_VARIABLE)
    address = address_of(properties, given) or address_of(properties, otherwise)
    try:
        return None if address is None else RegistryClient(address)
    except SchemaError as problem:
        raise UsageError(str(problem)) from None
