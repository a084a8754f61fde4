"""Columns without Spark: certain problems are reported, unknown columns pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ottla.pipelines.expressions.texts import needed_columns
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.column_flow import ColumnCheck, check_columns
from ottla.pipelines.running.loading import load_pipeline
from ottla.pipelines.steps.step_table import STEPS

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples" / "pipelines").rglob("*.yaml")) + sorted(
    (ROOT / "src" / "ottla" / "pipelines" / "demo").glob("*.yaml")
)
SCHEMA = "{user: string, at: timestamp, size: long, tags: array<string>, who: 'struct<a:int>'}"
PARSE = f"parse: {{format: json, schema: {SCHEMA}}}"


def problems(*steps: str, to: str = "console", folder: str = ".") -> list[str]:
    document = {"name": "p", "from": {"topic": "t"}, "steps": [yaml.safe_load(step) for step in steps]}
    try:
        check_columns(read_pipeline({**document, "to": yaml.safe_load(to)}, STEPS, folder))
    except PipelineError as wrong:
        return wrong.texts()
    return []


KNOWN = "there are: user, at, size, tags, who"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("filter: usr = 'a'", f"step 2, filter, where: there is no column 'usr'; {KNOWN}"),
        ("filter: 'timestamp > at'", f"step 2, filter, where: there is no column 'timestamp'; {KNOWN}"),
        ("filter: {equals: {x: 1}}", f"step 2, filter, equals: there is no column 'x'; {KNOWN}"),
        ("rule: {r: sizes > 1}", f"step 2, rule, rules: there is no column 'sizes'; {KNOWN}"),
        ("select: [user, sze]", f"step 2, select, columns: there is no column 'sze'; {KNOWN}"),
        ("select: {a: 'upper(usr)'}", f"step 2, select, columns: there is no column 'usr'; {KNOWN}"),
        ("rename: {usr: x}", f"step 2, rename, columns: there is no column 'usr'; {KNOWN}"),
        ("drop: [offset]", f"step 2, drop, columns: there is no column 'offset'; {KNOWN}"),
        ("cast: {sz: int}", f"step 2, cast, columns: there is no column 'sz'; {KNOWN}"),
        ("derive: {x: 'size + sz'}", f"step 2, derive, columns: there is no column 'sz'; {KNOWN}"),
        ("explode: size", "step 2, explode, column: 'size' is bigint, not a list or map"),
        (
            "watermark: {time: user, delay: 1 s}",
            "step 2, watermark, time: user is string, not a timestamp; read it as timestamp, or cast it before",
        ),
        ("window: {total: true, by: [usr]}", f"step 2, window, by: there is no column 'usr'; {KNOWN}"),
        (
            "window: {total: true, sum: {x: at}}",
            "step 2, window, sum: at is timestamp, not a number; cast it before, or use SQL",
        ),
        ("deduplicate: {by: [id]}", f"step 2, deduplicate, by: there is no column 'id'; {KNOWN}"),
        (
            "pattern: {by: [id], first: size = 1, then: size = 2, within: 1 s}",
            f"step 2, pattern, by: there is no column 'id'; {KNOWN}",
        ),
        (
            "pattern: {by: [user], first: size = 1, then: [size = 2, sze = 3], within: 1 s}",
            f"step 2, pattern, then: there is no column 'sze'; {KNOWN}",
        ),
        (
            "stateful: {by: [id], code: 'a:B', state: {n: int}, schema: {m: int}}",
            f"step 2, stateful, by: there is no column 'id'; {KNOWN}",
        ),
        (
            "enrich: {http: 'http://h/{usr}', schema: {city: string}}",
            f"step 2, enrich, http: there is no column 'usr'; {KNOWN}",
        ),
        (
            "enrich: {sqlite: a.db, query: 'SELECT a FROM t WHERE id = :id', schema: {a: int}}",
            f"step 2, enrich, query: there is no column 'id'; {KNOWN}",
        ),
        (
            "enrich: {http: 'http://h/{user}', schema: {Size: int}}",
            "step 2, enrich, schema: there is a column 'size' already; rename it before",
        ),
    ],
)
def test_missing_columns_are_reported_like_by_spark(step: str, told: str) -> None:
    assert problems(PARSE, step) == [told]


@pytest.mark.parametrize(
    "steps",
    [
        ["filter: USER = 'a' AND at > timestamp '2026-01-01'"],
        ["filter: _offset > 3"],
        ["derive: {x: 'cast(size AS bigint)', y: 'x + 1'}", "filter: y > 1"],
        ["derive: {x: 'filter(tags, t -> t > 1)', z: 'who.a', d: 'datediff(DAY, at, at)'}", "explode: x"],
        ["select: {a: size, b: 'a + 1'}", "filter: a + b > 1"],
        ["select: [who.a, user]", "filter: a > 1"],
        ["rename: {user: name}", "filter: name IS NOT NULL"],
        ["explode: {column: tags, into: tag, position: n}", "filter: tag <> 'x' AND n > 0"],
        ["python: {function: 'm:f'}", "filter: anything > 1", "select: [what]", "filter: what IS NULL"],
        ["sql: SELECT count(*) AS n FROM stream", "filter: n > 1"],
        ["enrich: {http: 'http://h/{user}', schema: {city: string}}", "filter: city = 'x' AND size > 1"],
        ["pattern: {by: [user], first: size = 1, then: who.a = 2, within: 1 s}", "filter: then_size > first_size"],
        [
            "watermark: {delay: 1 s}",
            "window: {size: 1 minute, by: [user], sum: {s: size}, aggregates: {x: 'max(size) - min(size)'}}",
            "filter: window_end > window_start AND s > x",
        ],
    ],
)
def test_valid_or_unknown_columns_pass(steps: list[str]) -> None:
    assert problems(PARSE, *steps) == []


def test_invalid_types_are_reported() -> None:
    (told,) = problems(PARSE, "stateful: {by: [user], code: 'a:B', state: {n: intt}, schema: {m: int}}")
    assert told.startswith("step 2, stateful, state: 'intt' is not a type; known: string, ")


def test_after_a_window_only_its_columns_are_there() -> None:
    window = "window: {total: true, by: [user], count: n}"

    assert problems(PARSE, window, "filter: size > 1") == [
        "step 3, filter, where: there is no column 'size'; there are: user, n"
    ]


@pytest.mark.parametrize(
    "step", ["window: {total: true, by: [a]}", "python: {function: 'own:all'}", "sql: SELECT a FROM stream"]
)
def test_rows_behind_a_merge_cannot_become_dead_letters(step: str) -> None:
    parse = "parse: {format: json, schema: {a: int}}"
    asked = "filter: {where: 1 / a > 0, on_error: dead}"
    (told,) = problems(parse, step, asked)
    assert "on_error: dead: rows behind a step that merges rows have no record" in told
    assert "write on_error: null" in told
    assert problems(parse, asked, step, "filter: 1 / a > 0", "filter: {where: 1 / a > 0, on_error: null}") == []


def test_the_record_itself_has_columns_and_sinks_want_some() -> None:
    assert problems("filter: value IS NOT NULL AND partition = 0", "filter: {matches: {key: a}}") == []
    assert problems(PARSE, to="{topic: t, key: usr, where: sze > 1}") == [
        f"to, 1, key: there is no column 'usr'; {KNOWN}",
        f"to, 1, where: there is no column 'sze'; {KNOWN}",
    ]
    table = "{sqlite: a.db, table: t, mode: upsert, key: user, delete_when: opp = 'd'}"
    assert problems(PARSE, to=table) == [f"to, 1, delete_when: there is no column 'opp'; {KNOWN}"]
    changes = "parse: {format: debezium, schema: {user: string}}"
    assert problems(changes, "filter: user = 'x' AND ts_ms > 0", to=table.replace("opp", "op")) == []


def test_schemas_in_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("{a: int}")
    parse = "parse: {format: json, schema: s.yaml}"

    assert problems(parse, "filter: a > 1", folder=str(tmp_path)) == []
    assert problems(parse, "filter: b > 1", folder=str(tmp_path)) == [
        "step 2, filter, where: there is no column 'b'; there are: a"
    ]
    assert "cannot read" in problems("parse: {format: json, schema: none.yaml}", folder=str(tmp_path))[0]


def test_a_problem_of_a_shared_stream_is_reported_once() -> None:
    streams = {
        "a": {"from": {"topic": "t"}, "steps": [{"filter": "x = 1"}]},
        "b": {"from": "a", "to": "console"},
        "c": {"from": "a", "to": "console"},
    }
    check = ColumnCheck(read_pipeline({"name": "p", "streams": streams}, STEPS))

    with pytest.raises(PipelineError):
        check.run()
    assert len(check.problems) == 1


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_right(file: Path) -> None:
    if "from" in file.read_text():
        check_columns(load_pipeline(file).pipeline)


def _begins_with_parse(values: object) -> bool:
    return isinstance(values, list) and isinstance(values[0], dict) and "parse" in values[0]


def test_the_pages_are_right() -> None:
    """Every pipeline in the documentation."""
    seen = 0
    for page in ("pipelines.md", "pipeline-steps.md", "pipeline-examples.md"):
        for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL):
            values = parse_document(block, page).values
            if ".avsc" not in block and ".proto" not in block and _begins_with_parse(values):
                values = {"name": "p", "from": {"topic": "t"}, "steps": values, "to": "console"}
            if isinstance(values, dict) and "name" in values:
                check_columns(read_pipeline(values, STEPS, str(ROOT)))
                seen += 1
    assert seen


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a > 1 AND b.c = 'x' OR `d e` IS NULL", ["a", "b", "d e"]),
        ("CASE WHEN a THEN upper(b) ELSE 'c' END", ["a", "b"]),
        ("current_date > a", ["a"]),
        ("a LIKE 'x%' AND b NOT IN (1, 2)", ["a", "b"]),
        ("cast(a AS int) > b", ["a", "b"]),
        ("a + INTERVAL 1 DAY > b", ["a", "b"]),
        ("transform(a, x -> x + b.x)", ["a", "b"]),
        ("extract(HOUR FROM a)", ["a"]),
        ("a:b.c", []),
        ("dateadd(DAY, n, at)", ["n", "at"]),
        ("x'1f' = a", ["a"]),
        ("a::int", ["a"]),
    ],
)
def test_names_in_expressions(text: str, names: list[str]) -> None:
    assert needed_columns(text) == names
