"""YAML documents with line numbers."""

from pathlib import Path

import pytest

from ottla.pipelines.model.document import parse_document, read_document
from ottla.pipelines.model.problems import PipelineError


def problem_of(text: str) -> str:
    with pytest.raises(PipelineError) as caught:
        parse_document(text, "file.yaml")
    return str(caught.value)


def test_every_value_has_its_line() -> None:
    document = parse_document("name: x\nsteps:\n  - filter:\n      where: a\n", "file.yaml")
    assert document.values == {"name": "x", "steps": [{"filter": {"where": "a"}}]}
    assert document.lines["steps", 0, "filter", "where"] == 4


def test_a_syntax_error_names_its_line() -> None:
    assert problem_of("name: x\nsteps: [\n").startswith("file.yaml:3: not readable as YAML")


def test_a_duplicate_name_is_refused() -> None:
    assert problem_of("name: x\nname: y\n") == "file.yaml:2: name: 'name' appears twice; remove one of them"


def test_tags_that_run_code_are_no_plain_values() -> None:
    for value in ("!!python/object/apply:os.system ['true']", "!!python/name:os.system x", "!own {a: 1}"):
        assert "is not a plain value" in problem_of(f"name: {value}\n")


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "nested too deeply, or too many values" in problem_of("\n".join(lines))


def test_an_endless_alias_is_refused() -> None:
    assert "nested too deeply, or too many values" in problem_of("a: &a [*a]")


def test_deep_nesting_is_refused() -> None:
    problem_of("a: " + "[" * 5_000 + "]" * 5_000)


def test_an_empty_file_is_no_value() -> None:
    assert parse_document("", "file.yaml").values is None


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file"):
        read_document(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read_document(tmp_path / "bad.yaml")
