"""The version that a row gets, without Spark."""

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ottla.pipelines.model.row_order import TIME_MICROS
from ottla.pipelines.steps.as_of_join import POSITION_KEY, ROW, SIDE, VERSION, VersionProcessor
from ottla.pipelines.steps.event_time_buffer import Values, sort_by_time

SCHEMA = StructType(
    [
        StructField(SIDE, IntegerType()),
        StructField(POSITION_KEY, StringType()),
        StructField(TIME_MICROS, LongType()),
        StructField("amount", IntegerType()),
        StructField("rate", IntegerType()),
        StructField("bank", StringType()),
    ]
)


def row(instant: int, amount: int) -> Values:
    return (ROW, "", instant, amount, None, None)


def version(instant: int, rate: int | None, place: str = "a:0000000001:") -> Values:
    return (VERSION, place, instant, None, rate, "x")


def put_together(is_left: bool, before: Values | None, *rows: Values) -> tuple[list[tuple[int, object]], Values | None]:
    made = VersionProcessor(SCHEMA.names, SCHEMA, ["rate", "bank"], is_left).join_in_order(
        sort_by_time(list(rows), 2), before
    )
    return [(each[3], each[4]) for each in made[0]], made[1]


def test_a_row_meets_the_newest_version_that_is_not_after_it() -> None:
    rows = [row(30, 5), version(20, 2), row(10, 2), version(10, 1), row(9, 1), row(19, 3), row(20, 4), version(31, 9)]
    assert put_together(False, None, *rows) == ([(2, 1), (3, 1), (4, 2), (5, 2)], (9, "x"))
    assert put_together(True, None, *rows)[0] == [(1, None), (2, 1), (3, 1), (4, 2), (5, 2)]


def test_the_previous_version_is_kept_and_a_null_version_counts() -> None:
    assert put_together(False, (7, "y"), row(1, 1)) == ([(1, 7)], (7, "y"))
    assert put_together(False, (7, "y"), version(1, None), row(1, 1)) == ([(1, None)], (None, "x"))
    assert put_together(False, None) == ([], None)


def test_of_two_versions_of_one_time_the_later_in_the_topic_counts() -> None:
    late, early = version(5, 2, "a:0000000010:"), version(5, 1, "a:0000000009:")
    for rows in ((late, early), (early, late)):
        assert put_together(False, None, *rows, row(5, 1))[0] == [(1, 2)]
