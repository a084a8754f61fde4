"""Stars and record columns: no duplicates in a list, and no other changes."""

import pytest

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.documents import check_comparisons, tables_in
from ottla.pipelines.sql.tables import Table


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT rowtime, * FROM t", "SELECT rowtime , * EXCEPT ( rowtime ) FROM t AS `t`"),
        ("SELECT DISTINCT *, `ROWKEY` FROM t", "SELECT DISTINCT * EXCEPT ( rowkey ) , `ROWKEY` FROM t AS `t`"),
        ("SELECT t.rowtime, t.* FROM t", "SELECT t . rowtime , t . * EXCEPT ( rowtime ) FROM t AS `t`"),
        (
            "SELECT t.rowtime, u.* FROM t JOIN u",
            "SELECT t . rowtime , u . * EXCEPT ( rowtime ) FROM t AS `t` JOIN u AS `u`",
        ),
        ("SELECT rowtime AS at, * FROM t", "SELECT rowtime AS at , * FROM t AS `t`"),
        ("SELECT id, * FROM t WHERE rowtime > 1", "SELECT id , * FROM t AS `t` WHERE rowtime > 1"),
        ("SELECT rowtime, count(*) FROM t", "SELECT rowtime , count ( * ) FROM t AS `t`"),
        (
            "SELECT * FROM (SELECT rowtime, rowkey, * FROM t) WHERE rowtime > 1",
            "SELECT * FROM ( SELECT rowtime , rowkey , * EXCEPT ( rowtime , rowkey ) FROM t AS `t` ) WHERE rowtime > 1",
        ),
    ],
)
def test_a_star_omits_columns_that_are_named_beside_it(text: str, wanted: str) -> None:
    query, names = tables_in(text, ["t", "u"])
    assert query.renamed({name: name for name in names}) == wanted


def test_an_error_position_of_spark_is_mapped_after_a_star() -> None:
    text = "SELECT rowtime, rowkey, *, wrong FROM t"
    query, _ = tables_in(text, ["t"])
    spark_text = query.renamed({"t": "t"})
    assert query.origin(spark_text, spark_text.index("wrong")) == text.index("wrong")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT id FROM t NATURAL JOIN u WHERE rowoffset < 5", "has a NATURAL JOIN, which would compare rowoffset"),
        ("SELECT id, t.rowkey FROM t NATURAL LEFT JOIN u", "has a NATURAL JOIN, which would compare rowkey"),
        ("SELECT count(*) FROM (SELECT DISTINCT * FROM t WHERE rowtime > 1)", "compares whole rows, and rowtime"),
        ("SELECT * FROM t WHERE rowoffset < 5 EXCEPT SELECT * FROM u", "name the columns instead of *"),
        ("SELECT id FROM t NATURAL JOIN u", ""),
        ("SELECT DISTINCT * FROM t", ""),
        ("SELECT DISTINCT id FROM t WHERE rowoffset < 5", ""),
        ("SELECT DISTINCT * FROM (SELECT id FROM t WHERE rowoffset < 5)", ""),
        ("SELECT * FROM t WHERE rowoffset < 5 UNION ALL SELECT * FROM t WHERE rowoffset > 7", ""),
        ("SELECT * EXCEPT (id) FROM t WHERE rowoffset < 5", ""),
        ("SELECT count(*) FROM t WHERE rowoffset < 5 UNION SELECT count(*) FROM u", ""),
    ],
)
def test_whole_row_comparisons_exclude_record_columns(text: str, words: str) -> None:
    """No two records share their offsets: nothing would be equal, silently."""
    query, names = tables_in(text, ["t", "u"])
    tables = [Table(name, name, columns={"id": "bigint"}) for name in names]
    if not words:
        check_comparisons(query, tables)
        return
    with pytest.raises(SqlError, match=words):
        check_comparisons(query, tables)
