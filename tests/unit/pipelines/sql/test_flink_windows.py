"""Flink's window functions, from its documentation, translated to Spark's."""

import pytest

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.flink_windows import in_sparks_words


def squeezed(text: str) -> str:
    return "".join(text.split()).lower()


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ("SELECT a FROM t  -- as it was", "SELECT a FROM t  -- as it was"),
        (
            "SELECT HOUR(TUMBLE_START(ts, INTERVAL '1' HOUR)), COUNT(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            "SELECT HOUR(window(ts, '1 hour').start), COUNT(*) FROM t GROUP BY window(ts, '1 hour')",
        ),
        (
            (
                "SELECT k, HOP_END(ts, INTERVAL '5' MINUTES, INTERVAL '1' HOUR) AS e FROM t"
                " GROUP BY HOP(ts, INTERVAL '5' MINUTES, INTERVAL '1' HOUR), k"
            ),
            "SELECT k, window(ts, '1 hour', '5 minute').end AS e FROM t GROUP BY window(ts, '1 hour', '5 minute'), k",
        ),
        (
            "SELECT f(window_start, 1) FROM TUMBLE(TABLE t, DESCRIPTOR(a), INTERVAL '1' DAY) GROUP BY window_start",
            "SELECT f(window(a, '1 day').start, 1) FROM t GROUP BY window(a, '1 day')",
        ),
        (
            "SELECT COUNT(*) FROM t GROUP BY SESSION(t.ts, INTERVAL '30' SECOND)",
            "SELECT COUNT(*) FROM t GROUP BY session_window(t.ts, '30 second')",
        ),
        (
            (
                "SELECT window_start, window_end, SUM(price) AS total FROM"
                " TABLE(TUMBLE(TABLE b, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end"
            ),
            (
                "SELECT window(at, '10 minute').start AS window_start, window(at, '10 minute').end AS window_end,"
                " SUM(price) AS total FROM b GROUP BY window(at, '10 minute')"
            ),
        ),
        (
            (
                "SELECT item, window_end AS e, count(*) FROM HOP(TABLE b, DESCRIPTOR(at), INTERVAL '5' MINUTES,"
                " INTERVAL '10' MINUTES) WHERE item IS NOT NULL GROUP BY item, window_start, window_end"
                " HAVING count(*) > 1"
            ),
            (
                "SELECT item, window(at, '10 minute', '5 minute').end AS e, count(*) FROM b WHERE item IS NOT NULL"
                " GROUP BY item, window(at, '10 minute', '5 minute') HAVING count(*) > 1"
            ),
        ),
        (
            (
                "SELECT * FROM (SELECT x.window_start, count(*) AS n FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(at),"
                " INTERVAL '1' DAY)) AS x GROUP BY x.window_start, x.window_end) WHERE n > 2 ORDER BY window_start"
            ),
            (
                "SELECT * FROM (SELECT window(at, '1 day').start AS window_start, count(*) AS n FROM b AS x"
                " GROUP BY window(at, '1 day')) WHERE n > 2 ORDER BY window_start"
            ),
        ),
        (
            "SELECT * FROM TABLE(HOP(TABLE b, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) AS x",
            (
                "SELECT * FROM (SELECT *, window(at, '10 minute', '5 minute').start AS window_start,"
                " window(at, '10 minute', '5 minute').end AS window_end FROM b) AS x"
            ),
        ),
        (
            (
                "SELECT count(*) FROM TUMBLE(DATA => TABLE b, SIZE => INTERVAL '1' DAY, TIMECOL => DESCRIPTOR(at))"
                " GROUP BY window_start HAVING window_end > x ORDER BY window_start"
            ),
            ("SELECT count(*) FROM b GROUP BY window(at, '1 day') HAVING window.end > x ORDER BY window.start"),
        ),
        (
            (
                "SELECT count(*) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
                " ORDER BY TUMBLE_START(ts, INTERVAL '1' HOUR)"
            ),
            "SELECT count(*) FROM t GROUP BY window(ts, '1 hour') ORDER BY window.start",
        ),
        (
            (
                "SELECT rank() OVER (ORDER BY window_start), window_end FROM TUMBLE(TABLE b, DESCRIPTOR(at),"
                " INTERVAL '1' DAY) GROUP BY window_start, window_end"
            ),
            (
                "SELECT rank() OVER (ORDER BY window(at, '1 day').start), window(at, '1 day').end AS window_end"
                " FROM b GROUP BY window(at, '1 day')"
            ),
        ),
        (
            (
                "SELECT window_start FROM TUMBLE(TABLE b, DESCRIPTOR(at), INTERVAL '1' DAY) GROUP BY window_start"
                " UNION ALL SELECT window_start FROM TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
                " GROUP BY window_start ORDER BY window_start"
            ),
            (
                "SELECT window(at, '1 day').start AS window_start FROM b GROUP BY window(at, '1 day')"
                " UNION ALL SELECT window(ts, '1 hour').start AS window_start FROM c GROUP BY window(ts, '1 hour')"
                " ORDER BY window_start"
            ),
        ),
        (
            (
                "SELECT b.k, count(*) FROM SESSION(TABLE b PARTITION BY k, DESCRIPTOR(at), INTERVAL '5' MINUTES)"
                " GROUP BY b.k, window_start, window_end"
            ),
            "SELECT b.k, count(*) FROM b GROUP BY b.k, session_window(at, '5 minute')",
        ),
    ],
)
def test_windows_of_flink_are_windows_of_spark(flink: str, spark: str) -> None:
    assert squeezed(in_sparks_words(flink)) == squeezed(spark)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT 1 FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(a), INTERVAL '1' HOUR, INTERVAL '1' DAY))", "CUMULATE"),
        ("SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' HOUR) FROM t", "TUMBLE_ROWTIME"),
        ("SELECT 1 FROM t GROUP BY TUMBLE(ts, '1 hour')", "write INTERVAL"),
        ("SELECT 1 FROM t GROUP BY HOP(ts, INTERVAL '1' HOUR)", "a HOP with 1 intervals"),
        ("SELECT 1 FROM t GROUP BY TUMBLE(ts, INTERVAL '1:30' MINUTE TO SECOND)", "write INTERVAL"),
        ("SELECT 1 FROM TABLE(TUMBLE(TABLE t, ts, INTERVAL '1' HOUR))", r"without DESCRIPTOR\(time column\)"),
        ("SELECT 1 FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(a), INTERVAL '1' HOUR))", "not grouped"),
        ("SELECT 1 FROM TUMBLE(TABLE t PARTITION BY k, DESCRIPTOR(a), INTERVAL '1' HOUR)", "only SESSION"),
        ("SELECT 1 FROM TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(a))", "SIZE => …"),
        (
            "SELECT k FROM SESSION(TABLE t, DESCRIPTOR(a), INTERVAL '1' HOUR) GROUP BY k, window_start, window_end",
            r"write SESSION\(TABLE t PARTITION BY k, …\)",
        ),
    ],
)
def test_an_unsupported_window_is_refused(text: str, words: str) -> None:
    with pytest.raises(SqlError, match=words):
        in_sparks_words(text)
