"""The conditions of a query on the stream's rows alone."""

from __future__ import annotations

import pytest

from ottla.pipelines.expressions.query import Where, parse_query, where_of


@pytest.mark.parametrize(
    ("text", "condition", "alias"),
    [
        ("SELECT a FROM stream WHERE a > 1", "`a` > 1", "stream"),
        ("select a from stream as s where s.a in (1, 2) and b", "`s` . `a` IN ( 1 , 2 ) AND `b`", "s"),
        ("SELECT a FROM stream s WHERE a > 1 GROUP BY a HAVING count(*) > 1", "`a` > 1", "s"),
        (
            "SELECT a FROM stream WHERE offset > 5 AND order = 1 ORDER BY a LIMIT 3",
            "`offset` > 5 AND `order` = 1",
            "stream",
        ),
        ("SELECT extract(day FROM at) d FROM `stream` WHERE (a OR (b)) LIMIT 3", "( `a` OR ( `b` ) )", "stream"),
        ("SELECT explode(tags) FROM stream WHERE size(tags) > 0 -- why", "`size` ( `tags` ) > 0", "stream"),
    ],
)
def test_a_condition_on_the_stream_is_found(text: str, condition: str, alias: str) -> None:
    assert where_of(parse_query(text)) == Where(condition, alias)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM stream",
        "SELECT a FROM stream GROUP BY a",
        "SELECT a FROM stream WHERE a IN (SELECT b FROM users)",
        "SELECT a FROM stream JOIN users USING (id) WHERE a > 1",
        "SELECT a FROM stream, users WHERE a > 1",
        "SELECT a FROM stream WHERE a > 1 UNION SELECT b FROM stream WHERE b > 1",
        "WITH x AS (SELECT a FROM stream WHERE a > 1) SELECT a FROM x",
        "SELECT a FROM stream LATERAL VIEW explode(tags) t AS tag WHERE tag > 1",
    ],
)
def test_conditions_on_several_tables_are_not_counted(text: str) -> None:
    assert where_of(parse_query(text)) is None
