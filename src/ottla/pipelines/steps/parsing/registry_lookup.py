"""Schemas out of a schema registry: those of writers by the id in a record, that of the reader by its subject.

Rules:
1. One question for each schema and process: Spark makes readers anew for every task, so what is known is kept here.
2. A schema that the registry does not know is the record's fault: it dies. A registry that does not answer is nobody's
   record's fault: it is asked for a while, and then the task fails and Spark does the batch again.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.operations.schema_registry.client import LATEST, RegistryClient, is_missing
from ottla.operations.schema_registry.errors import RegistryError, UnreachableError
from ottla.operations.schema_registry.errors import SchemaError as ClientSchemaError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.schemas import AVRO, TYPES, Schema
from ottla.pipelines.steps.parsing.schemas import SchemaError

PATIENCE_S = 30.0
PAUSE_S = 0.5
MISSING_S = 30.0  # for so long a schema that was not there is not asked for again
SCHEMAS_MAX = 10_000

_lock = threading.Lock()
_known: dict[tuple[RegistryAddress, SchemaName], Schema] = {}
_missing: dict[tuple[RegistryAddress, SchemaName], float] = {}  # until when


@dataclass(frozen=True)
class RegistryLookup:
    """Travels to the executors."""

    address: RegistryAddress

    def by_id(self, name: SchemaName) -> str | None:
        """The text of an Avro schema, with all that it refers to in its place."""
        from ottla.operations.schema_registry.formats.avro import flat  # noqa: PLC0415

        found = self.schema(name)
        if found is None:
            return None
        if found.kind != AVRO:
            raise SchemaError(f"schema {name} is of type {TYPES[found.kind]}, not AVRO")
        return flat(found)

    def by_fingerprint(self, fingerprint: bytes) -> str | None:
        """A registry knows none."""
        del fingerprint
        return None

    def schema(self, name: SchemaName) -> Schema | None:
        """None if the registry has no such schema. Raises UnreachableError, SchemaError."""
        key = (self.address, name)
        with _lock:
            found = _known.get(key)
            if found is not None:
                return found
            if time.monotonic() < _missing.get(key, 0.0):
                return None
            try:
                found = _ask(self.address, name)
            except RegistryError as problem:
                if not is_missing(problem):
                    raise SchemaError(str(problem)) from None
                if len(_missing) >= SCHEMAS_MAX:
                    _missing.clear()
                _missing[key] = time.monotonic() + MISSING_S
                return None
            except UnreachableError:
                raise
            except ClientSchemaError as problem:
                raise SchemaError(str(problem)) from None
            if len(_known) >= SCHEMAS_MAX:
                _known.clear()
            _known[key] = found
            return found


def newest_schema(address: RegistryAddress | None, subject: str, kind: str) -> Schema:
    """What a reader goes by. Raises SchemaError."""
    if address is None:
        raise SchemaError(f"subject {subject!r} needs a registry: write `registry: http://host:8081` at the top")
    try:
        client = RegistryClient(address)
        found = client.version(subject, LATEST).draft
        if found.kind != kind:
            raise SchemaError(f"subject {subject!r} is of type {TYPES[found.kind]}, not {TYPES[kind]}")
        return client.whole(found)
    except ClientSchemaError as problem:
        raise SchemaError(f"subject {subject!r}: {problem}") from None


def _ask(address: RegistryAddress, name: SchemaName) -> Schema:
    client = RegistryClient(address)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.schema(name)
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)
