"""What was exported goes into a registry under the ids and versions that it had.

Rules:
1. Looked at first: what is there already stays if it is the same, and if it is not, nothing is changed at all.
2. A subject is in mode IMPORT only while its versions are written; whatever happens, it then has the mode that it had,
   or the one that was exported.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.operations.errors import OperationError
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.errors import RegistryError, SchemaError
from ottla.operations.schema_registry.folders import Settings, Stored
from ottla.operations.schema_registry.schemas import Registered

IMPORT = "IMPORT"


def import_all(client: RegistryClient, stored: Stored) -> Iterator[Registered]:
    """Gives each version that was not there. Raises SchemaError, OperationError."""
    new = _missing_versions(client, stored.versions)
    subjects = dict.fromkeys(each.subject for each in new)
    modes = {subject: _own_mode(client, subject) for subject in subjects}
    changed: list[str] = []
    try:
        for subject in subjects:
            client.set_mode(IMPORT, subject, force=True)
            changed.append(subject)
        for each in new:
            got = client.register(each.subject, each.draft, schema_id=each.schema_id, version=each.version)
            if got != each.schema_id:
                raise OperationError(f"{each.subject} version {each.version} got id {got} instead of {each.schema_id}")
            yield each
        for each in new:
            if each.is_deleted:
                client.delete_version(each.subject, each.version)
    finally:
        for subject in changed:
            _set_mode(client, subject, modes[subject])
    for name, settings in stored.settings.items():
        _apply(client, name, settings)


def _missing_versions(client: RegistryClient, versions: list[Registered]) -> list[Registered]:
    """Those that the registry does not have. Raises OperationError if it has another schema there."""
    known = set(client.subjects(":*:", deleted=True))
    new = []
    for each in versions:
        found = _version(client, each) if each.subject in known else None
        if found is None:
            new.append(each)
        elif found.schema_id != each.schema_id or found.draft[:3] != each.draft[:3]:
            raise OperationError(
                f"the registry has another schema as {each.subject} version {each.version} (id {found.schema_id}, not "
                f"{each.schema_id}): nothing was imported"
            )
    return new


def _version(client: RegistryClient, wanted: Registered) -> Registered | None:
    try:
        return client.version(wanted.subject, wanted.version, deleted=True)
    except RegistryError as problem:
        if not is_missing(problem):
            raise
        return None


def _own_mode(client: RegistryClient, subject: str) -> str | None:
    try:
        return client.mode(subject, or_global=False)
    except RegistryError as problem:
        if not is_missing(problem):
            raise
        return None


def _set_mode(client: RegistryClient, subject: str, mode: str | None) -> None:
    if mode is None:
        client.delete_mode(subject)
    else:
        client.set_mode(mode, subject, force=True)


def _apply(client: RegistryClient, subject: str | None, settings: Settings) -> None:
    if settings.config:
        # What is asked is called compatibilityLevel, what is set is called compatibility.
        wanted = dict(settings.config)
        if "compatibilityLevel" in wanted:
            wanted["compatibility"] = wanted.pop("compatibilityLevel")
        client.set_config(wanted, subject)
    if settings.mode and settings.mode != IMPORT:
        try:
            client.set_mode(settings.mode, subject)
        except SchemaError:
            if subject is not None or settings.mode != "READWRITE":  # the usual one need not be set
                raise
