"""The columns by which a SELECT groups, if its text is unambiguous."""

from __future__ import annotations

import pytest

from ottla.pipelines.expressions.query import grouping_columns


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT page, count(*) AS n FROM stream GROUP BY page", {"page"}),
        ("select Land, `my page`, sum(n) n from stream where n > 1 group by land, `My Page` having sum(n) > 2",
         {"Land", "my page"}),
        ("SELECT date(at) AS day, s.page AS p, max(n) AS n FROM stream s GROUP BY s.page, date(at) ORDER BY n LIMIT 3",
         {"day", "p"}),
        ("SELECT s.page, max(n) AS n FROM stream s GROUP BY s.page", {"page"}),
        ("WITH a AS (SELECT page FROM stream GROUP BY page) SELECT page, 1 AS n FROM a GROUP BY page", {"page"}),
        ("SELECT page, count(*) AS n FROM (SELECT page FROM stream) GROUP BY page", {"page"}),
        ("SELECT page, n FROM stream", None),
        ("SELECT page, n FROM (SELECT page, count(*) AS n FROM stream GROUP BY page)", None),
        ("SELECT count(*) AS page FROM stream GROUP BY page", None),
        ("SELECT lower(page) AS page, count(*) AS n FROM stream GROUP BY page", None),
        ("SELECT page, count(*) AS n FROM stream GROUP BY page, land", None),
        ("SELECT 2 AS two, page, count(*) AS n FROM stream GROUP BY 2", None),
        ("SELECT page, land, count(*) AS n FROM stream GROUP BY ROLLUP (page, land)", None),
        ("SELECT page, land, count(*) AS n FROM stream GROUP BY page, land WITH CUBE", None),
        ("SELECT page, land, count(*) AS n FROM stream GROUP BY page, land GROUPING SETS ((page), (land))", None),
        ("SELECT page, count(*) AS n FROM stream GROUP BY ALL", None),
        ("SELECT page, explode(collect_list(n)) AS n FROM stream GROUP BY page", None),
        ("SELECT page, 1 AS n FROM stream GROUP BY page UNION ALL SELECT page, n FROM stream", None),
        ("SELECT page, n FROM stream UNION ALL SELECT page, count(*) AS n FROM stream GROUP BY page", None),
        ("not SQL 'at all", None),
    ],
)  # fmt: skip
def test_only_certain_columns_are_returned(query: str, columns: set[str] | None) -> None:
    assert grouping_columns(query) == columns
