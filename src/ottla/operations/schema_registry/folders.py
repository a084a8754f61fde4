"""A registry as a folder of files, for backups and for moving to another registry.

    FOLDER/registry.json               the global config and mode
    FOLDER/SUBJECT/config.json         config and mode of a subject, if it has its own
    FOLDER/SUBJECT/VERSION.json        a version as the registry tells it: id, schema, references, metadata, ruleSet

Names of subjects are written with per cent signs where a file could not be called so. Everything is read and checked
before anything is written to a registry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ottla.operations.errors import WrongInputError
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.errors import RegistryError, SchemaError
from ottla.operations.schema_registry.schemas import KINDS, SUFFIXES, Draft, Registered, read_registered

FILE_BYTES_MAX = 16 << 20
NAME_BYTES_MAX = 200  # of a file; longer subjects are cut and told apart by a hash, their name stands in the file
GLOBAL_FILE, CONFIG_FILE = "registry.json", "config.json"
KIND_OF_SUFFIX = {suffix: kind for kind, suffix in SUFFIXES.items()}


class Settings(NamedTuple):
    """Config and mode, of a subject or of all; None where there is none of its own."""

    config: dict[str, Any] | None
    mode: str | None


class Stored(NamedTuple):
    """All of a folder. `versions` are in an order in which every reference is there before it is needed."""

    versions: list[Registered]
    settings: dict[str | None, Settings]


def export(client: RegistryClient, folder: Path, subjects: Sequence[str], *, deleted: bool) -> Iterator[Registered]:
    """Writes the files; gives each version when it is written. Raises SchemaError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if not subjects:
        _write(folder / GLOBAL_FILE, {"config": client.config(), "mode": client.mode()})
    for subject in subjects or client.subjects(":*:", deleted=deleted):
        place = folder / file_name(subject)
        place.mkdir(exist_ok=True)
        alive = set(_or_none(client.versions, subject) or ())
        for version in client.versions(subject, deleted=deleted):
            found = client.version(subject, version, deleted=deleted)._replace(is_deleted=version not in alive)
            _write(place / f"{version}.json", _fields(found))
            yield found
        own = Settings(_own(client.config, subject), _own(client.mode, subject))
        if own != (None, None):
            _write(place / CONFIG_FILE, {"subject": subject, **own._asdict()})


def read_folder(folder: Path) -> Stored:
    """Raises WrongInputError."""
    if not folder.is_dir():
        raise WrongInputError(f"{folder} is no folder")
    versions: dict[tuple[str, int], Registered] = {}
    settings: dict[str | None, Settings] = {}
    for path in sorted(folder.glob("**/*.json")):
        content = _read(path)
        try:
            if path.name in (GLOBAL_FILE, CONFIG_FILE):
                settings[content.get("subject")] = Settings(content.get("config"), content.get("mode"))
                continue
            found = read_registered(content)
        except SchemaError as problem:
            raise WrongInputError(f"{path}: {problem}") from None
        versions[found.subject, found.version] = found
    if not versions and not settings:
        raise WrongInputError(f"{folder} holds nothing that was exported")
    return Stored(_ordered(versions), settings)


def read_draft_file(path: Path, kind: str | None = None) -> Draft:
    """A schema in a file of its own; the ending tells its format. Raises WrongInputError."""
    found = kind or KIND_OF_SUFFIX.get(path.suffix)
    if found is None:
        endings = ", ".join(KIND_OF_SUFFIX)
        raise WrongInputError(f"{path}: which format it is, its ending does not say ({endings}): add --type")
    return Draft(found, _text(path))


def drafts_of_folder(folder: Path) -> list[tuple[str, Path]]:
    """Subjects and the files of their schemas: `orders-value.avsc` is for orders-value. Raises WrongInputError."""
    found = [(unquote(path.stem), path) for path in sorted(folder.iterdir()) if path.suffix in KIND_OF_SUFFIX]
    if not found:
        raise WrongInputError(f"{folder} has no file that ends in {', '.join(KIND_OF_SUFFIX)}")
    return found


def kind_of(name: str) -> str:
    """avro, json or protobuf as a kind. Raises WrongInputError."""
    if name.upper() not in KINDS:
        raise WrongInputError(f"there is no type {name!r}: use {', '.join(each.lower() for each in KINDS)}")
    return KINDS[name.upper()]


def file_name(subject: str) -> str:
    """A name that every file system takes, and that no other subject has."""
    name = quote(subject, safe=" -_.,+=@()[]{}!~")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name) > NAME_BYTES_MAX:
        return f"{name[: NAME_BYTES_MAX - 20]}%{hashlib.sha256(subject.encode()).hexdigest()[:16]}"
    return name or "%"


def _ordered(versions: dict[tuple[str, int], Registered]) -> list[Registered]:
    """Older ids first, and before each what it refers to. Raises WrongInputError for circles."""
    done: dict[tuple[str, int], Registered] = {}
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


def _fields(found: Registered) -> dict[str, Any]:
    fields = {"subject": found.subject, "version": found.version, "id": found.schema_id}
    if found.guid is not None:
        fields["guid"] = found.guid
    if found.is_deleted:
        fields["deleted"] = True
    return fields | found.draft.body()


def _own(ask: Any, subject: str) -> Any:
    """What is set for this very subject."""
    return _or_none(lambda name: ask(name, or_global=False), subject)


def _or_none(ask: Any, subject: str) -> Any:
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
        raise WrongInputError(f"{path} is no JSON object: was it exported?")
    return content


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise WrongInputError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise WrongInputError(f"{path} cannot be read: {why.lower()}") from None
