"""Export of a registry to a folder, and import into another registry.

    FOLDER/registry.json               the global config and mode
    FOLDER/SUBJECT/config.json         config and mode of a subject, if it has its own
    FOLDER/SUBJECT/VERSION.json        a version as the registry returns it: id, schema, references, metadata, ruleSet

Subjects are percent-encoded where a file name requires it. All files are read and checked before anything is written to
a registry.
Rules of an import, which keeps IDs and versions:
1. Existing versions are compared first: equal ones are kept; if one differs, nothing is changed.
2. A subject is in mode IMPORT only while its versions are written. Afterwards it gets its previous mode, or the
   exported one, also after an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ottla.operations.errors import OperationError, WrongInputError
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.errors import RegistryError, SchemaError
from ottla.operations.schema_registry.schemas import (
    KINDS,
    SUFFIXES,
    RegisteredSchema,
    UnregisteredSchema,
    read_registered,
)

FILE_BYTES_MAX = 16 << 20
NAME_BYTES_MAX = 200  # of a file; longer subjects are truncated with a hash, and the file contains the full name
GLOBAL_FILE, CONFIG_FILE = "registry.json", "config.json"
KIND_OF_SUFFIX = {suffix: kind for kind, suffix in SUFFIXES.items()}


class SubjectSettings(NamedTuple):
    """Config and mode of a subject or global; None where the default applies."""

    config: dict[str, Any] | None
    mode: str | None


class ExportedRegistry(NamedTuple):
    """The contents of a folder. Every version comes after those that it references."""

    versions: list[RegisteredSchema]
    settings: dict[str | None, SubjectSettings]


def export_registry(
    client: RegistryClient, folder: Path, subjects: Sequence[str], *, deleted: bool
) -> Iterator[RegisteredSchema]:
    """Write the files; yields each version once it is written. Raises SchemaError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if not subjects:
        _write(folder / GLOBAL_FILE, {"config": client.config(), "mode": client.mode()})
    for subject in subjects or client.subjects(":*:", deleted=deleted):
        place = folder / file_name(subject)
        place.mkdir(exist_ok=True)
        alive = set(_none_if_missing(client.versions, subject) or ())
        for version in client.versions(subject, deleted=deleted):
            found = client.version(subject, version, deleted=deleted)._replace(is_deleted=version not in alive)
            _write(place / f"{version}.json", _fields(found))
            yield found
        own = SubjectSettings(_own_setting(client.config, subject), _own_setting(client.mode, subject))
        if own != (None, None):
            _write(place / CONFIG_FILE, {"subject": subject, **own._asdict()})


def read_folder(folder: Path) -> ExportedRegistry:
    """Read an exported folder. Raises WrongInputError."""
    if not folder.is_dir():
        raise WrongInputError(f"{folder} is not a folder")
    versions: dict[tuple[str, int], RegisteredSchema] = {}
    settings: dict[str | None, SubjectSettings] = {}
    for path in sorted(folder.glob("**/*.json")):
        content = _read(path)
        try:
            if path.name in (GLOBAL_FILE, CONFIG_FILE):
                settings[content.get("subject")] = SubjectSettings(content.get("config"), content.get("mode"))
                continue
            found = read_registered(content)
        except SchemaError as problem:
            raise WrongInputError(f"{path}: {problem}") from None
        versions[found.subject, found.version] = found
    if not versions and not settings:
        raise WrongInputError(f"{folder} contains no exported files")
    return ExportedRegistry(_ordered(versions), settings)


def read_draft_file(path: Path, kind: str | None = None) -> UnregisteredSchema:
    """A schema in a file of its own; the suffix determines its type. Raises WrongInputError."""
    found = kind or KIND_OF_SUFFIX.get(path.suffix)
    if found is None:
        endings = ", ".join(KIND_OF_SUFFIX)
        raise WrongInputError(f"{path}: the suffix does not determine the type ({endings}): add --type")
    return UnregisteredSchema(found, _text(path))


def drafts_of_folder(folder: Path) -> list[tuple[str, Path]]:
    """Subjects and the files of their schemas: `orders-value.avsc` is for orders-value. Raises WrongInputError."""
    found = [(unquote(path.stem), path) for path in sorted(folder.iterdir()) if path.suffix in KIND_OF_SUFFIX]
    if not found:
        raise WrongInputError(f"{folder} has no file that ends in {', '.join(KIND_OF_SUFFIX)}")
    return found


def kind_of(name: str) -> str:
    """The schema type for avro, json or protobuf. Raises WrongInputError."""
    if name.upper() not in KINDS:
        raise WrongInputError(f"there is no type {name!r}: use {', '.join(each.lower() for each in KINDS)}")
    return KINDS[name.upper()]


def file_name(subject: str) -> str:
    """A file name that is valid everywhere and unique to the subject."""
    name = quote(subject, safe=" -_.,+=@()[]{}!~")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name) > NAME_BYTES_MAX:
        return f"{name[: NAME_BYTES_MAX - 20]}%{hashlib.sha256(subject.encode()).hexdigest()[:16]}"
    return name or "%"


def _ordered(versions: dict[tuple[str, int], RegisteredSchema]) -> list[RegisteredSchema]:
    """Ascending IDs, references first. Raises WrongInputError for circular references."""
    done: dict[tuple[str, int], RegisteredSchema] = {}
    for start in sorted(versions.values(), key=lambda each: (each.schema_id, each.subject, each.version)):
        stack, open_keys = [start], {(start.subject, start.version)}
        while stack:
            here = stack[-1]
            waiting = [
                versions[each.subject, each.version]
                for each in here.draft.references
                if (each.subject, each.version) in versions and (each.subject, each.version) not in done
            ]
            if not waiting:
                done[here.subject, here.version] = here
                open_keys.discard((here.subject, here.version))
                stack.pop()
                continue
            following = waiting[0]
            if (following.subject, following.version) in open_keys:
                raise WrongInputError(f"{following.subject} version {following.version} refers to itself")
            open_keys.add((following.subject, following.version))
            stack.append(following)
    return list(done.values())


def _fields(found: RegisteredSchema) -> dict[str, Any]:
    fields = {"subject": found.subject, "version": found.version, "id": found.schema_id}
    if found.guid is not None:
        fields["guid"] = found.guid
    if found.is_deleted:
        fields["deleted"] = True
    return fields | found.draft.body()


def _own_setting(ask: Any, subject: str) -> Any:
    """The setting of the subject itself, without the global default."""
    return _none_if_missing(lambda name: ask(name, or_global=False), subject)


def _none_if_missing(ask: Any, subject: str) -> Any:
    try:
        return ask(subject)
    except RegistryError as problem:
        if not is_missing(problem):
            raise
        return None


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise WrongInputError(f"{path} is not a JSON object: was it exported?")
    return content


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise WrongInputError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise WrongInputError(f"{path} cannot be read: {why.lower()}") from None


# ---- import
IMPORT = "IMPORT"


def import_registry(client: RegistryClient, stored: ExportedRegistry) -> Iterator[RegisteredSchema]:
    """Yields each version that was added. Raises SchemaError, OperationError."""
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


def _missing_versions(client: RegistryClient, versions: list[RegisteredSchema]) -> list[RegisteredSchema]:
    """The versions that the registry lacks. Raises OperationError if one has another schema there."""
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


def _version(client: RegistryClient, wanted: RegisteredSchema) -> RegisteredSchema | None:
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


def _apply(client: RegistryClient, subject: str | None, settings: SubjectSettings) -> None:
    if settings.config:
        # Responses use compatibilityLevel, requests use compatibility.
        wanted = dict(settings.config)
        if "compatibilityLevel" in wanted:
            wanted["compatibility"] = wanted.pop("compatibilityLevel")
        client.set_config(wanted, subject)
    if settings.mode and settings.mode != IMPORT:
        try:
            client.set_mode(settings.mode, subject)
        except SchemaError:
            if subject is not None or settings.mode != "READWRITE":  # the default mode need not be set
                raise
