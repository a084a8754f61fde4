"""Registries as folders: file names, import order, and the state after a failed import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.operations.errors import OperationError, WrongInputError
from ottla.operations.schema_registry.errors import RegistryError
from ottla.operations.schema_registry.folders import ExportedRegistry, file_name, import_registry, read_folder
from ottla.operations.schema_registry.schemas import AVRO, Reference, RegisteredSchema, UnregisteredSchema


def version(subject: str, number: int, schema_id: int, *needs: tuple[str, int]) -> RegisteredSchema:
    references = tuple(Reference(name, name, each) for name, each in needs)
    return RegisteredSchema(subject, number, schema_id, UnregisteredSchema(AVRO, f'"{subject}{number}"', references))


def write(folder: Path, *versions: RegisteredSchema) -> Path:
    for each in versions:
        place = folder / file_name(each.subject)
        place.mkdir(parents=True, exist_ok=True)
        fields = {"subject": each.subject, "version": each.version, "id": each.schema_id, **each.draft.body()}
        (place / f"{each.version}.json").write_text(json.dumps(fields))
    return folder


@pytest.mark.parametrize("subject", ["a/b", "..", ".", "%", ":.test:orders", "中文", "a b", "", "x" * 1000, "a\0b"])
def test_every_subject_is_a_name_of_a_file(subject: str, tmp_path: Path) -> None:
    place = tmp_path / file_name(subject)
    place.mkdir()
    assert place.parent == tmp_path
    assert place.resolve().parent == tmp_path.resolve()


def test_long_subjects_have_files_of_their_own() -> None:
    assert file_name("x" * 1000) != file_name("x" * 1001)


def test_what_is_referred_to_comes_first(tmp_path: Path) -> None:
    found = read_folder(write(
        tmp_path, version("trip", 1, 1, ("city", 2)), version("city", 2, 9, ("name", 1)), version("name", 1, 5),
        version("city", 1, 2), version("lonely", 1, 3, ("elsewhere", 1)),
    ))  # fmt: skip
    order = [(each.subject, each.version) for each in found.versions]
    assert order == [("name", 1), ("city", 2), ("trip", 1), ("city", 1), ("lonely", 1)]


def test_folders_that_were_not_exported(tmp_path: Path) -> None:
    with pytest.raises(WrongInputError, match="not a folder"):
        read_folder(tmp_path / "nothing")
    with pytest.raises(WrongInputError, match="contains no exported"):
        read_folder(tmp_path)
    with pytest.raises(WrongInputError, match="refers to itself"):
        read_folder(write(tmp_path / "circle", version("a", 1, 1, ("b", 1)), version("b", 1, 2, ("a", 1))))
    for text in ("[]", "nonsense", '{"subject": "a"}', '{"subject": "a", "version": 1, "id": 1, "schemaType": "XML"}'):
        (tmp_path / "1.json").write_text(text)
        with pytest.raises(WrongInputError, match=r"1\.json"):
            read_folder(tmp_path)


class Client:
    """A registry that knows some versions and refuses one schema."""

    def __init__(self, known: list[RegisteredSchema], refused: int | None = None) -> None:
        self.known = {(each.subject, each.version): each for each in known}
        self.refused = refused
        self.calls: list[tuple[Any, ...]] = []

    def subjects(self, _prefix: str, *, deleted: bool) -> list[str]:
        return [subject for subject, _ in self.known]

    def version(self, subject: str, number: int, *, deleted: bool) -> RegisteredSchema:
        if (subject, number) not in self.known:
            raise RegistryError("Version not found.", 40402)
        return self.known[subject, number]

    def mode(self, subject: str, *, or_global: bool) -> str:
        if subject == "own":
            return "READONLY"
        raise RegistryError("no mode", 40409)

    def set_mode(self, mode: str, subject: str | None, *, force: bool = False) -> None:
        self.calls.append(("mode", subject, mode))

    def delete_mode(self, subject: str) -> None:
        self.calls.append(("no mode", subject))

    def register(self, subject: str, _draft: UnregisteredSchema, *, schema_id: int, version: int) -> int:
        if schema_id == self.refused:
            raise RegistryError("Overwrite new schema with id 2 is not permitted.", 42207)
        self.calls.append(("register", subject, version, schema_id))
        return schema_id


def test_an_import_that_fails_leaves_no_subject_in_mode_import() -> None:
    client = Client([], refused=2)
    stored = ExportedRegistry([version("a", 1, 1), version("own", 1, 2)], {})
    with pytest.raises(RegistryError, match="not permitted"):
        list(import_registry(client, stored))  # type: ignore[arg-type]
    assert client.calls == [
        ("mode", "a", "IMPORT"), ("mode", "own", "IMPORT"), ("register", "a", 1, 1),
        ("no mode", "a"), ("mode", "own", "READONLY"),
    ]  # fmt: skip


def test_another_schema_in_its_place_stops_an_import_before_it_begins() -> None:
    client = Client([version("a", 1, 7)])
    with pytest.raises(OperationError, match=r"another schema as a version 1 \(id 7, not 1\): nothing was imported"):
        list(import_registry(client, ExportedRegistry([version("b", 1, 2), version("a", 1, 1)], {})))  # type: ignore[arg-type]
    assert client.calls == []
