"""Tables beside a stream have the stored values, and equal keys match."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import Around, living, table, through

from ottla.pipelines.steps.join_tables import _to_dataframe, file_table
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOPS = """\
id,zip,phone,code,opens,since,price,rate,open
007,01234,+49123,1e5,10:30,2026-01-01 10:00:00,1.10,1.5e-3,true
8,99999,+1555,2e3,23:15,2026-02-01 00:00:00,2,NaN,false
"""


def test_a_column_of_csv_is_a_number_only_where_all_of_it_is_written_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shops.csv").write_text(SHOPS)
    rows = file_table(spark, str(tmp_path), "shops.csv")
    kinds = {name: kind for name, kind in rows.dtypes if kind != "string"}
    assert kinds == {"since": "timestamp", "price": "double", "rate": "double", "open": "boolean"}
    first = rows.collect()[0]
    assert [first[name] for name in ("id", "zip", "phone", "code", "opens")] == [
        "007",
        "01234",
        "+49123",
        "1e5",
        "10:30",
    ]


def test_a_text_matches_the_text_of_a_file_and_no_number_that_looks_like_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "names.csv").write_text("id,name\n7,seven\n1.10,version\n")
    frame = table(spark, [("7",), ("007",), ("1.10",), ("1.1",), ("abc",)], "id string", tmp_path)
    joined = through(frame, {"join": {"table": "names.csv", "on": ["id"]}})
    found = {row["id"]: row["name"] for row in living(joined)}
    assert found == {"7": "seven", "1.10": "version"}


BIG = 2**53


@pytest.mark.parametrize(
    ("ours", "keys", "theirs", "their_key", "same"),
    [
        ("long", [BIG, BIG + 1], "double", float(BIG), [BIG]),
        ("double", [float(BIG), 1.5], "long", BIG + 1, []),
        ("decimal(38,18)", [Decimal("1.000000000000000001"), Decimal(1)], "double", 1.0, [Decimal(1)]),
        ("decimal(38,18)", [Decimal("1.000000000000000001"), Decimal(1)], "decimal(38,0)", Decimal(1), [Decimal(1)]),
        ("decimal(38,0)", [Decimal(1), Decimal(10**37)], "decimal(38,18)", Decimal("1.000000000000000001"), []),
        ("decimal(10,2)", [Decimal("1.50")], "decimal(12,4)", Decimal("1.5000"), [Decimal("1.50")]),
        ("long", [3], "decimal(38,18)", Decimal(3), [3]),
        ("int", [3], "double", 3.0, [3]),
    ],
)
def test_numbers_of_other_types_match_where_they_are_the_same(
    spark: SparkSession, tmp_path: Path, ours: str, keys: list[Any], theirs: str, their_key: object, same: list[Any]
) -> None:
    spark.createDataFrame([(their_key, "x")], f"id {theirs}, name string").write.parquet(
        str(tmp_path / "names.parquet")
    )
    frame = table(spark, [(key,) for key in keys], f"id {ours}", tmp_path)

    joined = through(frame, {"join": {"table": "names.parquet", "on": ["id"]}})

    assert [row["id"] for row in living(joined)] == same


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("x.csv", "id,n\na,1\nb\n"),
        ("x.csv", "id,n\na,1\nb,2,3\n"),
        ("x.json", '{"id":"a"}\n{broken\n'),
        ("x.json", "broken\n"),
    ],
)
def test_a_file_with_a_line_that_does_not_fit_is_refused(
    spark: SparkSession, tmp_path: Path, file: str, text: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(StepError, match=rf"cannot read {file}: .*line"):
        file_table(spark, str(tmp_path), file)


@pytest.mark.parametrize(
    ("kind", "known", "found"), [("integer", 7, ["7"]), ("real", 1.5, ["1.5", "1.50"])], ids=["whole", "fraction"]
)
def test_a_text_matches_a_number_of_a_database_and_a_text_that_is_none_ends_nothing(
    spark: SparkSession, tmp_path: Path, kind: str, known: float, found: list[str]
) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute(f"CREATE TABLE names (id {kind}, name text)")
        shop.execute("INSERT INTO names VALUES (?, 'x')", (known,))
    frame = table(spark, [("7",), ("007",), ("1.5",), ("1.50",), ("abc",), (None,)], "id string", tmp_path)
    joined = through(frame, {"join": {"sqlite": "shop.db", "table": "names", "on": ["id"]}})
    assert sorted(row["id"] for row in living(joined)) == found


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([Decimal("1.000000000000000001"), Decimal("2")], "decimal(38,18)"),
        ([Decimal("1E+3"), None], "decimal(38,0)"),
        ([Decimal("1" * 30), Decimal("0.0000000001")], "string"),
        ([Decimal("NaN"), Decimal("1")], "string"),
        ([2**53 + 1, 0.5], "string"),
        ([2**53, 0.5], "double"),
        ([{"a": 1}], "string"),
    ],
)
def test_numbers_of_a_database_keep_all_their_digits(spark: SparkSession, values: list[Any], kind: str) -> None:
    rows = _to_dataframe(spark, ["n"], [(value,) for value in values], "numbers")
    assert rows.dtypes == [("n", kind)]
    wanted = ['{"a": 1}'] if values == [{"a": 1}] else [str(each) for each in values] if kind == "string" else values
    assert [row["n"] for row in rows.collect()] == wanted


@pytest.mark.parametrize(
    "step", [{"union": "other"}, {"join": {"as_of": "other", "on": ["id"]}}], ids=["union", "as of"]
)
def test_text_and_numbers_of_two_streams_are_not_mixed(spark: SparkSession, step: dict[str, Any]) -> None:
    watermark = {"watermark": {"time": "at", "delay": "1 second"}}
    around = Around(spark)
    numbers = table(spark, [], "id long, at timestamp")
    around.streams["other"] = through(numbers, watermark)
    texts = table(spark, [], "id string, at timestamp")
    texts.context.streams["other"] = around.streams["other"]  # type: ignore[attr-defined]
    with pytest.raises(StepError, match=r"id is string, and .*bigint"):
        through(texts, watermark, step)
