"""A star and what the record says: never twice in a list, and nothing else is touched."""

import pytest

from ottla.pipelines.sql.documents import origin_of, tables_in


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
def test_a_star_leaves_out_what_is_named_beside_it(text: str, wanted: str) -> None:
    query, names = tables_in(text, ["t", "u"])
    assert query.renamed({name: name for name in names}) == wanted


def test_what_spark_complains_about_is_found_behind_it() -> None:
    text = "SELECT rowtime, rowkey, *, wrong FROM t"
    query, _ = tables_in(text, ["t"])
    spark_text = query.renamed({"t": "t"})
    assert origin_of(query, spark_text, spark_text.index("wrong")) == text.index("wrong")
