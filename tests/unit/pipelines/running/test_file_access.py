"""A pipeline reads only files in its own folder and below a --root, also through links."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.sink_factory import check_places
from ottla.pipelines.steps.step_table import STEPS

FILE = """\
name: views
from: {{topic: site}}
steps:
  - {step}
to: console
"""
PLACES = ["{outside}/{name}", "../outside/{name}", "file:{outside}/{name}", "file://{outside}/{name}",
          "FILE://{outside}/{name}", "link/{name}", "sub/../../outside/{name}"]  # fmt: skip
READS = {
    "join: {{table: '{file}', on: [id]}}": "secret.csv",
    "join: {{sqlite: '{file}', table: users, on: [id]}}": "users.db",
    "sql: {{query: SELECT * FROM stream JOIN t USING (id), tables: {{t: '{file}'}}}}": "secret.json",
    "enrich: {{sqlite: '{file}', query: 'SELECT a FROM t WHERE id = :id', schema: {{a: long}}}}": "users.db",
    "enrich: {{sqlalchemy: 'sqlite:///{file}', query: 'SELECT a FROM t WHERE id = :id', schema: {{a: long}}}}":
        "users.db",
    "enrich: {{http: 'http://x/{{id}}', schema: '{file}'}}": "schema.json",
    "parse: {{format: json, schema: '{file}'}}": "schema.json",
    "parse: {{format: csv, schema: '{file}'}}": "schema.yaml",
    "parse: {{format: text, schema: '{file}'}}": "schema.ddl",
    "parse: {{format: avro, schema: '{file}'}}": "schema.avsc",
    "parse: {{format: avro, schema: own.avsc, schemas: '{file}'}}": "schemas",
    "parse: {{format: protobuf, schema: '{file}', message: M}}": "schema.proto",
    "parse: {{format: protobuf, schema: '{file}', message: N}}": "schema.desc",
    "python: {{function: 'own:f', each: row, schema: '{file}'}}": "schema.json",
    "stateful: {{code: 'own:f', by: [id], state: '{file}', schema: {{a: long}}, forget_after: 1 hour}}": "schema.json",
    "stateful: {{code: 'own:f', by: [id], schema: '{file}', state: {{a: long}}, forget_after: 1 hour}}": "schema.json",
    "outliers: {{model: '{file}'}}": "forest.npz",
    "filter: {{classifier: {{model: '{file}', features: [a], keep: [x]}}}}": "model.joblib",
}  # fmt: skip
NAMES = [*set(READS.values()) - {"schemas"}, "schemas/1.avsc"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The pipeline's folder; `outside` is beside it, and `link` in it points there."""
    for place in (tmp_path / "outside", tmp_path / "own"):
        (place / "schemas").mkdir(parents=True)
        for name in NAMES:
            (place / name).write_text("{}")
    (tmp_path / "own" / "sub").mkdir()
    (tmp_path / "own" / "link").symlink_to("../outside")
    return tmp_path / "own"


def read(folder: Path, step: str, *roots: str) -> Pipeline:
    found = read_pipeline(parse_document(FILE.format(step=step), "p.yaml").values, STEPS, str(folder))
    return found._replace(roots=roots)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", READS)
def test_no_step_reads_outside_of_the_folder(folder: Path, step: str, place: str) -> None:
    outside = folder.parent / "outside"
    file = place.format(outside=outside, name=READS[step])
    with pytest.raises(PipelineError, match=r"is outside of the pipeline's folder: allow it with --root") as wrong:
        check_places(read(folder, step.format(file=file)))
    assert wrong.value.problems[0].path[:2] == ("steps", 0)
    if "sqlalchemy" not in step or not place.lower().startswith("file:"):
        check_places(read(folder, step.format(file=file), str(outside)))


@pytest.mark.parametrize("step", READS)
def test_every_step_reads_in_the_folder(folder: Path, step: str) -> None:
    for file in (READS[step], f"sub/../{READS[step]}", str(folder / READS[step])):
        check_places(read(folder, step.format(file=file)))


def test_links_in_a_table_and_imports_of_a_schema_are_followed(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / "table.parquet" / "day=1").mkdir(parents=True)
    (folder / "table.parquet" / "day=1" / "part.parquet").symlink_to(outside / "secret.csv")
    (folder / "day=2.csv").symlink_to(outside / "secret.csv")
    (folder / "schemas" / "2.avsc").symlink_to(outside / "schema.avsc")
    (folder / "m.proto").write_text('syntax = "proto3";\nimport "n.proto";\n')
    (folder / "n.proto").write_text('import public "o.proto"; import "google/protobuf/timestamp.proto";')
    (folder / "o.proto").symlink_to(outside / "schema.proto")
    (folder / "code.py").symlink_to(outside / "secret.csv")
    for step in (
        "join: {table: table.parquet, on: [id]}",
        "join: {table: 'day=*.csv', on: [id]}",
        "join: {table: '{x,day=2}.csv', on: [id]}",
        "parse: {format: avro, schema: own.avsc, schemas: schemas}",
        "parse: {format: protobuf, schema: m.proto, message: M}",
        "python: {function: 'code:f'}",
        "stateful: {code: 'code:f', by: [id], state: {a: long}, schema: {a: long}, forget_after: 1 hour}",
    ):
        with pytest.raises(PipelineError, match=r"outside of the pipeline's folder|braces"):
            check_places(read(folder, step))


def test_schema_and_code_of_a_sink_are_read_in_the_folder(folder: Path) -> None:
    (folder / "code.py").symlink_to(folder.parent / "outside" / "secret.csv")
    for sink in ("{topic: out, format: avro, schema: ../outside/schema.avsc}", "{foreach_batch: 'code:f'}"):
        text = f"name: views\nfrom: {{topic: site}}\nto: {sink}\n"
        with pytest.raises(PipelineError, match="outside of the pipeline's folder"):
            check_places(read_pipeline(parse_document(text, "p.yaml").values, STEPS, str(folder)))


def test_every_field_of_a_step_that_may_be_a_file_is_known() -> None:
    """Detected by the field's help: a new one must be returned by `files`, too."""
    known = {
        ("classifier", "model"), ("enrich", "sqlite"), ("filter", "classifier"), ("join", "sqlite"), ("join", "table"),
        ("outliers", "model"), ("parse", "schema"), ("parse", "schemas"), ("python", "function"), ("python", "schema"),
        ("sql", "tables"), ("stateful", "code"), ("stateful", "schema"), ("stateful", "state"), ("enrich", "schema"),
        ("enrich", "sqlalchemy"),
    }  # fmt: skip
    words = ("file", "folder", "schema", "module")
    found = {
        (name, field.name)
        for name, spec in STEPS.items()
        for field in fields(spec)
        if any(word in field.metadata.get("doc", "").lower().split() for word in words)
    }
    about_schemas = {("parse", "encoding"), ("parse", "strict"), ("parse", "subject")}
    assert found <= known | about_schemas
    assert {name for name, _ in known} - {"classifier"} == {
        name for name, spec in STEPS.items() if "files" in vars(spec)
    }


def test_the_command_refuses_a_table_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = folder.parent / "outside"
    step = f"join: {{table: {outside}/secret.csv, on: [id]}}"
    (folder / "p.yaml").write_text(FILE.format(step=step))
    assert main(["pipeline", "check", str(folder / "p.yaml"), "--offline"]) == 2
    said = capsys.readouterr().err
    assert f"p.yaml:4: step 1, join, table: {outside}/secret.csv is outside" in said
    assert main(["pipeline", "check", str(folder / "p.yaml"), "--offline", "--root", os.fspath(outside)]) == 0
