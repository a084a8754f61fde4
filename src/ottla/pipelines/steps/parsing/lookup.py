"""Which schema a record was written with: the seam for a schema registry.

A record may carry an id or GUID (operations/schema_registry/framing.py) or a fingerprint (eight bytes after C3 01,
Avro's single-object encoding). A lookup turns them into schemas. Lookups travel to the executors, so they must be
picklable, and they are asked once for each schema and process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ottla.operations.schema_registry.framing import SchemaName
from ottla.pipelines.steps.parsing.schemas import FILE_BYTES_MAX, SchemaError

FILES_MAX = 10_000


class SchemaLookup(Protocol):
    """The text of a schema, or None where there is none."""

    def by_id(self, name: SchemaName) -> str | None: ...

    def by_fingerprint(self, fingerprint: bytes) -> str | None: ...


@dataclass(frozen=True)
class KnownSchemas:
    """Schemas that were read from files when the pipeline started."""

    ids: dict[int, str]
    fingerprints: dict[bytes, str]

    def by_id(self, name: SchemaName) -> str | None:
        return self.ids.get(name) if isinstance(name, int) else None

    def by_fingerprint(self, fingerprint: bytes) -> str | None:
        return self.fingerprints.get(fingerprint)


def read_folder(folder: Path | None, own_schema: str) -> KnownSchemas:
    """`42.avsc` is the schema with the id 42; files of any name are found by fingerprint. Raises SchemaError."""
    ids: dict[int, str] = {}
    fingerprints = {fingerprint(own_schema): own_schema}
    for path in _files(folder):
        text = read_avsc(path)
        fingerprints[fingerprint(text)] = text
        if path.stem.isdigit():
            ids[int(path.stem)] = text
    return KnownSchemas(ids, fingerprints)


def read_avsc(path: Path) -> str:
    """Raises SchemaError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SchemaError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise SchemaError(f"cannot read {path}: {getattr(problem, 'strerror', None) or 'not UTF-8 text'}") from None


def fingerprint(schema: str) -> bytes:
    """CRC-64-AVRO of the canonical form, as it stands in a record: little-endian."""
    import fastavro.schema  # noqa: PLC0415 (only who reads Avro needs it)

    values: Any = json.loads(schema)
    canonical = fastavro.schema.to_parsing_canonical_form(values)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    if not folder.is_dir():
        raise SchemaError(f"{folder} is no folder")
    files = sorted(folder.glob("*.avsc"))
    if len(files) > FILES_MAX:
        raise SchemaError(f"{folder} holds more than {FILES_MAX} schemas")
    return files
