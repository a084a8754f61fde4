"""Finds the schema that a record was written with: in a folder, or in a schema registry.

A record may carry an id or GUID (operations/schema_registry/framing.py) or a fingerprint (eight bytes after C3 01,
Avro's single-object encoding). Lookups are pickled to the executors and called once per schema and process.

Rules for a registry:
1. One request per schema and process: Spark recreates readers for every task, so results are cached in this module.
2. A schema that the registry does not have is a fault of the record, which dies. An unavailable registry is not:
   requests are retried for a while, then the task fails and Spark repeats the batch.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ottla.operations.schema_registry.client import LATEST, RegistryClient, is_missing
from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.operations.schema_registry.errors import RegistryError, UnreachableError
from ottla.operations.schema_registry.errors import SchemaError as ClientSchemaError
from ottla.operations.schema_registry.framing import SchemaName
from ottla.operations.schema_registry.schemas import AVRO, TYPES, Schema
from ottla.pipelines.steps.parsing.schemas import FILE_BYTES_MAX, SchemaError

FILES_MAX = 10_000

RETRY_S = 30.0
RETRY_BACKOFF_S = 0.5
NEGATIVE_CACHE_S = 30.0  # time for which a missing schema is not requested again
SCHEMAS_MAX = 10_000


class SchemaLookup(Protocol):
    """The text of a schema, or None if it does not exist."""

    def by_id(self, name: SchemaName) -> str | None: ...

    def by_fingerprint(self, fingerprint: bytes) -> str | None: ...


@dataclass(frozen=True)
class FileSchemas:
    """Schemas read from files when the pipeline started."""

    ids: dict[int, str]
    fingerprints: dict[bytes, str]

    def by_id(self, name: SchemaName) -> str | None:
        return self.ids.get(name) if isinstance(name, int) else None

    def by_fingerprint(self, fingerprint: bytes) -> str | None:
        return self.fingerprints.get(fingerprint)


def read_schema_folder(folder: Path | None, own_schema: str) -> FileSchemas:
    """`42.avsc` is the schema with the id 42; any file is found by fingerprint. Raises SchemaError."""
    ids: dict[int, str] = {}
    fingerprints = {fingerprint(own_schema): own_schema}
    for path in _files(folder):
        text = read_avsc(path)
        fingerprints[fingerprint(text)] = text
        if path.stem.isdigit():
            ids[int(path.stem)] = text
    return FileSchemas(ids, fingerprints)


def read_avsc(path: Path) -> str:
    """Raises SchemaError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SchemaError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise SchemaError(f"cannot read {path}: {getattr(problem, 'strerror', None) or 'not UTF-8 text'}") from None


def fingerprint(schema: str) -> bytes:
    """CRC-64-AVRO of the canonical form, little-endian as in a record."""
    import fastavro.schema  # # noqa: PLC0415 (optional dependency)

    values: Any = json.loads(schema)
    canonical = fastavro.schema.to_parsing_canonical_form(values)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    if not folder.is_dir():
        raise SchemaError(f"{folder} is not a folder")
    files = sorted(folder.glob("*.avsc"))
    if len(files) > FILES_MAX:
        raise SchemaError(f"{folder} holds more than {FILES_MAX} schemas")
    return files


_lock = threading.Lock()
_known: dict[tuple[RegistryAddress, SchemaName], Schema] = {}
_missing: dict[tuple[RegistryAddress, SchemaName], float] = {}  # expiry


@dataclass(frozen=True)
class RegistryLookup:
    """Pickled to the executors."""

    address: RegistryAddress

    def by_id(self, name: SchemaName) -> str | None:
        """The text of an Avro schema, with its references resolved."""
        from ottla.operations.schema_registry.formats.avro import inline_references  # noqa: PLC0415

        found = self.schema(name)
        if found is None:
            return None
        if found.kind != AVRO:
            raise SchemaError(f"schema {name} is of type {TYPES[found.kind]}, not AVRO")
        return inline_references(found)

    def by_fingerprint(self, fingerprint: bytes) -> str | None:
        """Registries have no fingerprints."""
        del fingerprint
        return None

    def schema(self, name: SchemaName) -> Schema | None:
        """Return None if the registry has no such schema. Raises UnreachableError, SchemaError."""
        key = (self.address, name)
        with _lock:
            found = _known.get(key)
            if found is not None:
                return found
            if time.monotonic() < _missing.get(key, 0.0):
                return None
            try:
                found = _fetch_schema(self.address, name)
            except RegistryError as problem:
                if not is_missing(problem):
                    raise SchemaError(str(problem)) from None
                if len(_missing) >= SCHEMAS_MAX:
                    _missing.clear()
                _missing[key] = time.monotonic() + NEGATIVE_CACHE_S
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
    """The schema of a reader. Raises SchemaError."""
    if address is None:
        raise SchemaError(f"subject {subject!r} needs a registry: write `registry: http://host:8081` at the top")
    try:
        client = RegistryClient(address)
        found = client.version(subject, LATEST).draft
        if found.kind != kind:
            raise SchemaError(f"subject {subject!r} is of type {TYPES[found.kind]}, not {TYPES[kind]}")
        return client.with_references(found)
    except ClientSchemaError as problem:
        raise SchemaError(f"subject {subject!r}: {problem}") from None


def _fetch_schema(address: RegistryAddress, name: SchemaName) -> Schema:
    client = RegistryClient(address)
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return client.schema(name)
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_BACKOFF_S)
