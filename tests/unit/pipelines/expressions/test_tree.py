"""What Spark gets is written from the tree: names in backticks, strings escaped, nothing that the user wrote."""

from __future__ import annotations

import pytest
from sqlglot import exp

from ottla.pipelines.expressions.functions import ALLOWED, functions
from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.query import check_query, read_query
from ottla.pipelines.expressions.texts import check_expression, needed_columns
from ottla.pipelines.expressions.tree import check, parse_expression, to_spark
from ottla.pipelines.expressions.writer import write


def spark(text: str) -> str:
    tree = parse_expression(text)
    check(tree)
    return to_spark(tree)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a.`b c` + Max(x)", "`a` . `b c` + `Max` ( `x` )"),
        ("'it''s' \"x\" r'\\n'", "'it\\'sx\\\\n'"),
        ("'${env:HOME}'", "'\\u0024{env:HOME}'"),  # Spark would put the environment there
        ("'a\nb\u202e'", "'a\\u000ab\\u202e'"),
        ("- 1 ::string", "- 1 :: STRING"),
        ("a == b != c", "`a` = `b` <> `c`"),
        ("`a``b`", "`a``b`"),
        ("CAST(a AS Struct<`x y`:Int not null>)", "CAST ( `a` AS STRUCT<`x y`: INT NOT NULL> )"),
        ("date_add(day, 1, b)", "date_add ( DAY , 1 , `b` )"),
        ("extract(`DAY FROM at) OR (1` FROM at)", "extract ( `DAY FROM at) OR (1` FROM `at` )"),
        ("day(date_add)", "`day` ( `date_add` )"),
    ],
)
def test_text_for_spark(text: str, written: str) -> None:
    assert spark(text) == written
    assert spark(written) == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a" * 60_000, "longer than 50000 characters"),
        ("array(" * 10_000 + ")" * 10_000, "longer than"),
        ("(" * 61 + "a" + ")" * 61, "nested deeper than 60"),
        ("NOT " * 3000 + "a", "nested deeper than 1000"),
        ("-" * 2 + "1", "has a comment"),
        ("- " * 4000 + "1", "nested deeper than 1000"),
        ("a" + "[0]" * 1500, "nested deeper than 1000"),
        ("CASE WHEN a THEN " * 900 + "1" + " END" * 900, "nested deeper than 1000"),
        ("a, " * 3000 + "a", "more than 5000 parts"),
        ("a AS b", "cannot be read at 'AS'"),
        ("a b", "cannot be read at 'b'"),
        ("a, b", "cannot be read at ','"),
        ("ref/**/lect('a')", "comment"),
        ("r\u0435flect('java.lang.System', 'exit')", "no function of Spark"),
        ("\uff52eflect('a')", "no function of Spark"),
        ("uper(a)", "did you mean upper()?"),
        ("`a${env:HOME}`", "which is not allowed"),
        ("${env:HOME}", "is not SQL"),
        ("a[rand()]", "calls rand()"),
        ("transform(a, rand -> rand + rand(1))", "calls rand()"),
        ("a:b.c", "cannot be read at ':'"),
        ("cast(a AS geometry)", "is not a type"),
        ("cast(a AS int) FROM t", "cannot be read at 'FROM'"),
        ("aes_encrypt(a, 'key')", "initialisation vector"),
        ("sum(a) OVER (ORDER BY uuid())", "calls uuid()"),
        ("current_catalog()", "tells about the session"),
        ("/*+ BROADCAST(a) */ b", "comment"),
        ("TABLE(a)", "no function of Spark"),
        ("a IN (TABLE x)", "cannot be read at 'x'"),
        ("EXISTS (FROM x)", "uses FROM"),
        ("1e", "not a number"),
        ("a::interval day to", "ends too early"),
        ("a::interval", "ends too early"),
        ("x'1'' OR 1'", "cannot be read"),
        ("a.5", "cannot be read at '.5'"),
        ("CASE WHEN a THEN b", "ends too early"),
        ("cast(concat('n', 'ow') AS timestamp)", "'now' as a time"),
        ("cast(chr(110) || 'ow' AS date)", "a computed constant as a time"),
        ("to_date(reverse(trim(' yadot ')))", "'today' as a time"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str, words: str) -> None:
    assert words in str(check_expression(text))


@pytest.mark.parametrize("text", ["a + " * 2000 + "a", "a = 1 OR " * 1200 + "b", "array(" * 58 + "a" + ")" * 58])
def test_long_chains_are_not_deep(text: str) -> None:
    assert check_expression(text) is None


def test_every_function_has_a_class() -> None:
    assert {function.kind for function in functions().values()} > {*ALLOWED, "code", "files", "random", "session"}
    assert [*functions()] == sorted(functions())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT /*+ BROADCAST(users) */ * FROM stream", "hint"),
        ("SELECT * FROM stream PIVOT (max(a) FOR b IN (1))", "cannot be read"),
        ("SELECT * FROM (WITH x AS (SELECT 1 AS a) SELECT * FROM x), x", "reads x"),
        ("WITH y AS (SELECT * FROM x), x AS (SELECT 1) SELECT * FROM y", "reads x"),
        ("SELECT * FROM explode(array(1))", "None"),
        ("SELECT * FROM stream, LATERAL read_files('/etc')", "no function of Spark"),
        ("SELECT * FROM stream, LATERAL upper('a')", "reads upper(), which is not allowed"),
        ("SELECT * FROM stream LATERAL VIEW upper('a') t", "reads upper(), which is not allowed"),
        ("SELECT a AS `x` FROM stream ORDER BY rand()", "calls rand()"),
        ("SELECT a FROM stream FOR SYSTEM_VERSION AS OF 1", "cannot be read at"),
        ("SELECT a INTO x FROM stream", "cannot be read at"),
        ("SELECT a FROM stream TABLESAMPLE (5 ROWS)", "cannot be read"),
        ("SELECT avg(x) OVER w FROM stream WINDOW >= AS (PARTITION BY y)", "not known here"),
        ("SELECT avg(x) OVER w FROM stream WINDOW wAS (PARTITION BY y)", "not known here"),
        ("SELECT a AS 1 FROM stream", "not known here"),
        ("SELECT a FROM select", "ends too early"),
        ("SELECT a FROM stream UNION SELECT a FROM users INTERSECT SELECT a FROM users", "not known here"),
    ],
)
def test_queries_that_are_not_understood_are_refused(text: str, words: str) -> None:
    assert words in str(check_query(text, ["users"]))


def test_the_place_of_a_problem_is_known() -> None:
    text = "SELECT a,\n  fish(b) FROM stream"
    with pytest.raises(SqlError) as wrong:
        read_query(text)
    assert wrong.value.at == text.index("fish")


def test_a_form_that_is_not_listed_is_not_written() -> None:
    """Nodes of other dialects, and parts of nodes that nothing here writes."""
    for tree in (exp.Command(this="DROP"), exp.Anonymous(this=exp.to_identifier("upper"), expressions=[], more=True)):
        with pytest.raises(SqlError, match="not known here"):
            write(tree)


def test_columns_that_are_needed() -> None:
    assert needed_columns("transform(a.b, x -> x + c.x) || `d e` || current_date") == ["a", "c", "d e"]
