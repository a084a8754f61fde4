"""The effect of each step on the order of rows, and the upserts that are refused because of it."""

from __future__ import annotations

import pytest

from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.row_order import ELEMENT_POSITION, SOURCE_ORDER, TIME_MICROS, RowOrder, row_order_after
from ottla.pipelines.model.sink_specs import SqliteSink
from ottla.pipelines.model.specs import Problems, read_spec
from ottla.pipelines.steps.step_table import STEPS

TOTAL = {"window": {"total": True, "by": ["page"], "count": "n"}}
MINUTES = {"window": {"size": "1 minute", "by": ["page"], "count": "n"}}
SCHEMA = {"page": "string"}

# Steps, the key, and whether an upsert by it is allowed; the steps of a refusal end with the cause.
Steps = list[dict[str, object]]
KEEPS: list[dict[str, object]] = [
    {"parse": {"format": "json", "schema": SCHEMA}},
    {"filter": {"where": "n > 1"}},
    {"rule": {"good": "n > 1"}},
    {"select": ["page"]},
    {"rename": {"page": "path"}},
    {"drop": ["n"]},
    {"cast": {"page": "string"}},
    {"derive": {"page": "lower(page)"}},
    {"mask": {"columns": {"page": "redact"}}},
    {"flatten": {}},
    {"sample": {"fraction": 0.5}},
    {"python": {"function": "code:clean", "each": "row"}},
    {"watermark": {"time": "at", "delay": "1 minute"}},
    {"deduplicate": {"by": ["id"], "within": "1 hour"}},
    {"join": {"table": "prices.csv", "on": ["page"]}},
    {"join": {"newest_of": "other", "on": ["page"]}},
    {"join": {"sqlite": "shop.db", "table": "pages", "on": ["page"], "kind": "left"}},
    {"outliers": {"model": "forest.npz"}},
    {"enrich": {"http": "http://users/{page}", "schema": {"city": "string"}}},
]
LOSES: list[dict[str, object]] = [
    {"union": {"with_stream": "other"}},
    {"join": {"with_stream": "other", "on": ["page"], "within": "1 hour"}},
    {"join": {"with_stream": "other", "on": ["page"], "within": "1 hour", "kind": "semi"}},
    {"python": {"function": "code:clean", "each": "batch"}},
    {"python": {"function": "code:clean"}},
    {"sql": {"query": "SELECT page, n FROM stream WHERE n > 1"}},
]
PATTERN: dict[str, object] = {"pattern": {"by": ["page"], "first": "n = 1", "then": "n = 2", "within": "1 hour"}}
STATEFUL: dict[str, object] = {
    "stateful": {"by": ["page"], "code": "code:Visits", "state": {"n": "int"}, "schema": {"m": "int"}}
}
GROUPS: list[tuple[dict[str, object], list[str]]] = [
    (TOTAL, ["page"]),
    ({"window": {"total": True, "count": "n"}}, ["n"]),
    (MINUTES, ["window_start", "page"]),
    (MINUTES, ["page", "window_end", "n"]),
    ({"window": {"session": "1 minute", "by": ["page"]}}, ["page", "window_start"]),
    ({"top": {"of": ["page"], "by": ["land"], "size": "1 minute"}}, ["window_start", "land", "rank"]),
    ({"top": {"of": ["page"], "by": ["land"], "size": "1 minute"}}, ["window_end", "land", "page"]),
    ({"associations": {"basket": "a", "item": "b", "size": "1 minute"}}, ["window_start", "when", "then"]),
    ({"sql": {"query": "SELECT page, count(*) AS n FROM stream GROUP BY page"}}, ["page"]),
]


def order_after(*steps: dict[str, object]) -> RowOrder:
    document = {
        "name": "x",
        "streams": {
            "other": {"from": {"topic": "others"}},
            "first": {"from": {"topic": "pages"}, "steps": list(steps[:1])},
            "second": {"from": "first", "steps": list(steps[1:]), "to": "console"},
        },
    }
    streams = read_pipeline(document, STEPS).streams
    return row_order_after(streams, streams["second"])


@pytest.mark.parametrize("step", KEEPS, ids=str)
def test_steps_that_keep_every_row_apart_keep_the_order_of_the_topic(step: dict[str, object]) -> None:
    assert order_after(step) == RowOrder(SOURCE_ORDER)
    assert order_after(KEEPS[0], step).determines_newest_for(["page"])


@pytest.mark.parametrize("step", LOSES, ids=str)
def test_steps_that_make_new_rows_or_hold_rows_back_lose_it(step: dict[str, object]) -> None:
    (name,) = step
    order = order_after(KEEPS[0], step, KEEPS[1])
    assert not order.determines_newest_for(["page"])
    assert order.lost_at == f"step 1, {name}, of stream second"


@pytest.mark.parametrize(("step", "key"), GROUPS, ids=str)
def test_groups_need_no_order_if_the_key_identifies_them(step: dict[str, object], key: list[str]) -> None:
    order = order_after(step)
    assert order.determines_newest_for(key)
    assert all(order.determines_newest_for([*key, more]) for more in ("n", "page"))
    if step != GROUPS[1][0]:
        assert not order.determines_newest_for(key[:-1] if key[-1] != "n" else key[:1])
    assert not order_after(step, LOSES[0]).determines_newest_for(key)


def test_elements_are_in_the_order_of_their_list_and_ordered_rows_in_that_of_their_time() -> None:
    explode, order = {"explode": {"column": "pages"}}, {"order": {}}
    assert order_after(explode).columns == (*SOURCE_ORDER, ELEMENT_POSITION)
    assert order_after(order).columns == (TIME_MICROS,)
    assert order_after(LOSES[0], {"anomalies": {"value": "n"}}).columns == (TIME_MICROS,)
    assert order_after(LOSES[0], PATTERN) == order_after(LOSES[0], STATEFUL) == RowOrder((TIME_MICROS,))
    assert order_after(TOTAL, explode).lost_at == "step 1, explode, of stream second"
    assert not order_after(TOTAL, explode).determines_newest_for(["page"])


@pytest.mark.parametrize(
    ("steps", "key", "is_enough"),
    [
        (
            [{"filter": {"where": "n > 1"}}, {"drop": ["n"]}, {"sample": {"fraction": 0.5, "by": ["page"]}}],
            "page",
            True,
        ),
        ([{"rename": {"page": "path"}}], "path", True),
        ([{"rename": {"page": "path"}}], "page", False),
        ([{"select": ["page", "n"]}], "page", True),
        ([{"select": {"path": "`page`", "n": "n"}}], "path", True),
        ([{"select": {"page": "lower(page)", "n": "n"}}], "page", False),
        ([{"select": ["n"]}], "n", False),
        ([{"derive": {"n": "n + 1"}}], "page", True),
        ([{"derive": {"Page": "lower(page)"}}], "page", False),
        ([{"cast": {"page": "int"}}], "page", False),
        ([{"mask": {"columns": {"page": "hash"}, "salt": "12345678"}}], "page", True),
        ([{"mask": {"columns": {"page": "last 2"}}}], "page", False),
        ([{"parse": {"format": "json", "schema": SCHEMA, "column": "n"}}], "page", False),
        ([{"python": {"function": "code:clean", "each": "row"}}], "page", False),
        ([{"join": {"newest_of": "other", "on": ["page"]}}], "page", True),
        ([{"enrich": {"http": "http://users/{page}", "schema": {"city": "string"}}}], "page", True),
        ([{"rule": {"good": "n > 1"}}, {"flatten": {}}, {"outliers": {"model": "m.npz"}}], "page", True),
        ([{"window": {"total": True, "by": ["n"]}}], "page", False),
    ],
    ids=str,
)
def test_group_keys_are_kept_while_their_columns_are_unchanged(steps: Steps, key: str, is_enough: bool) -> None:
    assert order_after(TOTAL, *steps).determines_newest_for([key]) == is_enough


def test_every_step_is_tried_here() -> None:
    tried = {name for step in (*KEEPS, *LOSES, *(step for step, _ in GROUPS)) for name in step}
    assert set(STEPS) - tried == {"explode", "order", "anomalies", "pattern", "stateful"}


def refusals(*steps: dict[str, object], **sink: object) -> list[str]:
    to = {"sqlite": "x.db", "table": "t", "mode": "upsert", "key": "page", **sink}
    document = {"name": "x", "from": {"topic": "pages"}, "steps": list(steps), "to": to}
    try:
        read_pipeline(document, STEPS)
    except PipelineError as wrong:
        return wrong.texts()
    return []


NOT_KNOWN = "to, 1: which of several rows with the same page is the newest is not known after"
CURE = "name the column that determines it (newest_by: COLUMN)"


def test_an_upsert_without_order_is_refused_and_the_cure_is_accepted() -> None:
    python = {"python": {"function": "code:clean"}}
    assert refusals(KEEPS[0], python) == [f"{NOT_KNOWN} step 2, python, of stream main; {CURE}"]
    assert refusals(KEEPS[0], python, newest_by="at") == []
    assert refusals(KEEPS[0], python, mode="append", key=None) == []


def test_an_upsert_by_a_part_of_the_group_key_is_refused() -> None:
    more = "or have page, window_start in key"
    assert refusals(MINUTES) == [f"{NOT_KNOWN} step 1, window, of stream main; {CURE}, {more}"]
    assert refusals(MINUTES, key=["page", "window_start"]) == []
    assert refusals(MINUTES, newest_by="window_end") == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mode": "append"}, "means nothing for mode append"),
        ({"mode": "upsert", "key": ["at"]}, "the same value in all rows of a key"),
        ({"mode": "upsert", "key": ["id"], "columns": ["id", "n"]}, "write 'at' in columns, too"),
    ],
)
def test_newest_by_that_makes_no_sense(fields: dict[str, object], text: str) -> None:
    problems: Problems = []
    read_spec(SqliteSink, {"sqlite": "x.db", "table": "t", "newest_by": "at", **fields}, (), problems)
    assert [text in problem.text() for problem in problems] == [True]


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, []),
        ({"mode": "append", "key": None}, ["delete_when: means nothing for mode append"]),
        ({"newest_by": "at"}, ["delete_when: a deleted row is not stored: an older one that arrives later"]),
    ],
)
def test_deletions_need_the_order_of_the_topic(fields: dict[str, object], texts: list[str]) -> None:
    problems: Problems = []
    sink = {"sqlite": "x.db", "table": "t", "mode": "upsert", "key": ["id"], "delete_when": "op = 'd'", **fields}
    read_spec(SqliteSink, sink, (), problems)
    assert [found.text().startswith(text) for found, text in zip(problems, texts, strict=True)] == [True] * len(texts)
    assert refusals(KEEPS[0], {"python": {"function": "code:clean"}}, delete_when="op = 'd'") != []


def test_behind_as_of_rows_are_in_the_order_of_their_time_and_the_other_stream_is_read() -> None:
    step = {"join": {"as_of": "other", "on": ["page"]}}
    assert order_after(step) == RowOrder((TIME_MICROS,))
    with pytest.raises(PipelineError, match="there is no stream 'others'"):
        order_after({"join": {"as_of": "others", "on": ["page"]}})
