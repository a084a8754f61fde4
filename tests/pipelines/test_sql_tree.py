"""Our tree against Spark's own parser: text that is accepted means the same after it was written from the tree.

For every text one of two things holds: it is refused, or Spark's parser makes the same plan of it and of what we write.
Most texts are made from the examples in Spark's description of its functions; half of them are changed to be hostile.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.pipelines.expressions.test_safety import (
    BAD_EXPRESSIONS,
    BAD_QUERIES,
    CLOCKS,
    FIXED_TIMES,
    FROZEN_TIMES,
    GOOD_EXPRESSIONS,
    GOOD_QUERIES,
)

from ottla.pipelines.expressions.functions import ALLOWED, functions
from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.query import read_query
from ottla.pipelines.expressions.texts import check_condition, check_expression
from ottla.pipelines.expressions.tree import check, parse_expression, to_spark
from ottla.pipelines.expressions.writer import to_text, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = re.compile(r"> (SELECT[^;]*);")
SHAPES = ("{}", "CASE WHEN a IS NOT NULL THEN {} ELSE b.c END", "transform(list, x -> coalesce({}, x)) [0] <=> - 1")
HOSTILE = (
    "system.builtin.{}", "{} FROM text.`/etc/passwd`", "({}) AS x", "{} -- ", "{} /* */", "/*+ x */ {}", "{}; {}",
    "(SELECT {})", "EXISTS (SELECT {} FROM t)", "{} || '${{env:HOME}}'", "{} |> SELECT 1", "identifier('{}')",
    "({}, reflect('a', 'b'))", "x -> {}", "{} USING 'cat'", "(VALUES ({}))", "{} OVER (ORDER BY rand())", "`{}`",
    "{}:a.b", "{} = :x", "{} = ?", "{{{}}}", "{} NOT NOT IN (1)", "- - {} :: string :: date", "! {} !", "a . {}",
)  # fmt: skip
WORDS = """
    SELECT FROM WHERE AND OR NOT IN LIKE ILIKE RLIKE BETWEEN IS NULL DISTINCT ALL ANY CASE WHEN THEN
    ELSE END AS CAST INTERVAL DAY TO SECOND DATE TIMESTAMP 'x' 'now' 1 2.5 10L X'1F' r'\\' a b.c `d e` .
    , ( ) [ ] + - * / % DIV | & ^ ~ ! || << >> >>> = == <=> <> != < <= > >= :: -> => ESCAPE FILTER OVER
    WITHIN GROUP ORDER BY PARTITION ROWS RANGE FIRST LAST NULLS IGNORE EXISTS TRUE FALSE UNKNOWN COLLATE
    UTF8_LCASE EXTRACT TRIM BOTH FOR count( upper( struct( map( array( JOIN LEFT ON USING NATURAL
    LATERAL VIEW explode( UNION EXCEPT INTERSECT WITH LIMIT OFFSET HAVING WINDOW stream users text.`/x`
    VALUES TABLE PIVOT TABLESAMPLE CROSS SEMI ANTI ROLLUP CUBE GROUPING SETS ASC DESC SORT CLUSTER
    DISTRIBUTE
""".split()  # noqa: SIM905 (easier to read)
SHIFT_AFTER_TYPE = re.compile(r"\b(?:map|array|struct)\b.*>>", re.IGNORECASE | re.DOTALL)  # Spark: end of a type
# Spark: `current_timestamp (x)` is an alias; ours is a call with an argument, which Spark then refuses.
NAMES_BEHIND_CLOCK = re.compile(r"current_(?:date|time|timestamp)\s*\(\s*\w", re.IGNORECASE)
FUZZED, FUZZED_IN_FULL = 600, 20_000
STATEMENTS = [
    *GOOD_QUERIES,
    "SELECT DISTINCT a, b FROM stream ORDER BY a DESC NULLS LAST, b ASC LIMIT 3 OFFSET 2",
    "SELECT ALL a FROM stream SORT BY a",
    "SELECT a FROM stream DISTRIBUTE BY a SORT BY b",
    "SELECT a FROM stream CLUSTER BY a",
    "SELECT a, b, count(*) FROM stream GROUP BY ROLLUP (a, b)",
    "SELECT a, b, count(*) FROM stream GROUP BY a, CUBE (b)",
    "SELECT a, b, count(*) FROM stream GROUP BY GROUPING SETS ((a, b), (a), ())",
    "SELECT a, b, count(*) FROM stream GROUP BY a, b GROUPING SETS ((a, b), a)",
    "SELECT a, count(*) FROM stream GROUP BY a WITH ROLLUP",
    "SELECT a, count(*) FROM stream GROUP BY ALL",
    "SELECT a FROM stream CROSS JOIN users",
    "SELECT a FROM stream NATURAL LEFT JOIN users",
    "SELECT a FROM stream LEFT SEMI JOIN users ON stream.a = users.a",
    "SELECT a FROM stream LEFT ANTI JOIN users USING (a, b)",
    "SELECT a FROM stream FULL OUTER JOIN users ON true JOIN users u2 ON u2.a = stream.a",
    "SELECT a FROM stream JOIN (SELECT 1 AS a UNION SELECT 2) x USING (a)",
    "SELECT a FROM stream LATERAL VIEW OUTER posexplode(list) t AS p, x WHERE x > 1",
    "SELECT a, stack(2, 1, 2) AS (x, y) FROM stream",
    "SELECT (SELECT max(b) FROM users WHERE users.a = stream.a) AS m FROM stream",
    "SELECT a FROM stream WHERE EXISTS (SELECT 1 FROM users) AND a NOT IN (SELECT a FROM users)",
    "(SELECT a FROM stream) UNION ALL (SELECT a FROM users) ORDER BY a LIMIT 1",
    "SELECT a FROM stream EXCEPT SELECT a FROM users INTERSECT SELECT b FROM users",
    "SELECT a FROM stream MINUS SELECT a FROM users",
    "SELECT a FROM stream UNION ALL BY NAME SELECT a FROM users",
    "WITH x AS (SELECT a FROM stream), y AS (SELECT a FROM x) SELECT * FROM y, x",
    "SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM stream",
    "SELECT sum(a) OVER (ORDER BY c RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 1 DAY FOLLOWING) FROM stream",
    "SELECT lag(a) IGNORE NULLS OVER w, sum(b) FILTER (WHERE b > 1) OVER w FROM stream WINDOW w AS (ORDER BY b)",
    "SELECT t.*, stream.* EXCEPT (a) FROM stream JOIN users AS t(a, b) USING (a)",
    "SELECT listagg(a, ',') WITHIN GROUP (ORDER BY b) FROM stream HAVING count(*) > 1",
]


@cache
def examples(spark: SparkSession) -> dict[str, list[str]]:
    """The expressions in Spark's own description of each function."""
    analysis: Any = spark._jvm.org.apache.spark.sql.catalyst.analysis  # type: ignore[union-attr]
    found: dict[str, list[str]] = {}
    for registry in (analysis.FunctionRegistry.builtin(), analysis.TableFunctionRegistry.builtin()):
        names = registry.listFunction()
        for name in (names.apply(place) for place in range(names.size())):
            if name.funcName()[0].isalpha():
                described = registry.lookupFunction(name).get().getExamples()
                found[name.funcName()] = [text.removeprefix("SELECT ").strip() for text in EXAMPLE.findall(described)]
    return found


def plan_of(spark: SparkSession, text: str, *, is_query: bool = False) -> str:
    """Spark's plan as text, without ids; "" for what Spark cannot parse."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    try:
        plan = parser.parsePlan(text) if is_query else parser.parseExpression(text)
    except Exception:  # noqa: BLE001 (Java's error)
        return ""
    return re.sub(r"#\d+L?", "", plan.toString() if not is_query else plan.treeString())


def written(text: str, *, is_query: bool = False) -> str | None:
    """What Spark would get, or None if it is refused."""
    try:
        if is_query:
            return to_text(write(read_query(text, ["users"]).tree))
        tree = parse_expression(text)
        check(tree)
        return to_spark(tree)
    except SqlError:
        return None


def differs(spark: SparkSession, text: str, *, is_query: bool = False) -> str:
    """How the meaning changes, or ""."""
    mine = written(text, is_query=is_query)
    if mine is None:
        return ""
    # Explained: Spark puts the environment into strings, has a word STREAM of its own, and knows no accents in names.
    plain = text.replace("${", "\\u0024{")
    plain = (
        re.sub(r"(?<!`)\bstream\b(?!`)(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"`\g<0>`", plain, flags=re.IGNORECASE)
        if is_query
        else plain
    )
    sparks, ours = plan_of(spark, plain, is_query=is_query), plan_of(spark, mine, is_query=is_query)
    if (not sparks and (not text.isascii() or SHIFT_AFTER_TYPE.search(text))) or NAMES_BEHIND_CLOCK.search(text):
        return ""
    return "" if sparks == ours else f"{text!r}\n  is written {mine!r}\n  Spark reads {sparks}\n  and then {ours}"


def mutations(seeds: list[str], count: int, seed: int) -> Iterator[str]:
    """Texts with words exchanged, left out, doubled and put in."""
    chance = random.Random(seed)
    for _ in range(count):
        pieces = re.findall(r"\w+\(?|'[^']*'|`[^`]*`|\s+|.", chance.choice(seeds))
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(pieces))
            kind = chance.randrange(4)
            if kind == 0:
                pieces[place] = f" {chance.choice(WORDS)} "
            elif kind == 1 and len(pieces) > 1:
                del pieces[place]
            elif kind == 2:
                pieces.insert(place, f" {chance.choice(WORDS)} ")
            else:
                pieces[place] += f" {chance.choice(pieces)} "
        yield "".join(pieces)


LITERALS = [
    "'it\\'s'",
    "'it''s'",
    '"dq""x\'y"',
    "r'raw\\n'",
    "'a' 'b' \"c\"",
    "'\\u0041\\101\\q\\%\\_\\0\\Z\\b\\t\\\\'",
    "'\\U0001F600'",
    "'é😀\n\t'",
    "'${env:HOME} $ {x} {{y}}'",
    "'\\$\\{env:HOME}'",
    "'%\\n'",
    "'--' || '/* x */'",
    "X'1fA0'",
    "1",
    "1L",
    "1S",
    "1Y",
    "2BD",
    "1.5",
    ".5",
    "1.",
    "1e3",
    "1.5E-3D",
    "2.5F",
    "-2147483648",
    "- 5",
    "+5",
    "~5",
    "- - 5",
    "1 - -1",
    "2 * 3 DIV 2 % 4",
    "1 + 2 * 3 - 4",
    "1 | 2 & 3 ^ 4 << 1 >> 1 >>> 1",
    "1 < 2 = true",
    "1 = 1 <=> true = false",
    "NOT 1 = 2 AND true OR false",
    "1 BETWEEN 0 AND 2",
    "1 NOT BETWEEN 2 AND 1 + 1",
    "'a' LIKE 'A%' ESCAPE '/'",
    "'a' ILIKE ANY ('A', 'b')",
    "'a' NOT RLIKE '^b\\\\d'",
    "1 IN (1, 2)",
    "1 IS NOT DISTINCT FROM 2",
    "NOT NOT true",
    "! true",
    "null IS NULL",
    "true IS NOT UNKNOWN",
    "DATE '2026-01-31'",
    "TIMESTAMP '2026-01-31 10:00:00 UTC'",
    "TIMESTAMP_NTZ'2026-01-31'",
    "INTERVAL 1 DAY 2 HOURS",
    "INTERVAL '1' DAY",
    "INTERVAL '1 02:03' DAY TO MINUTE",
    "INTERVAL '3 days'",
    "INTERVAL -1 HOUR",
    "CASE 1 WHEN 1 THEN 'a' ELSE 'b' END",
    "CASE WHEN false THEN 1 END",
    "cast('1' AS decimal(10, 2))",
    "'1'::int::string",
    "-1::string",
    "try_cast('x' AS int)",
    "struct(1 AS a, 'b' AS b).b",
    "named_struct('a', 1).a",
    "array(1, 2, 3)[1 + 1]",
    "map('a', 1)['a']",
    "transform(array(1, 2), (x, i) -> x + i)",
    "aggregate(array(1, 2), 0, (a, x) -> a + x, a -> a * 2)",
    "filter(array(1, 2), x -> exists(array(2), y -> y = x))",
    "mask('aB1', upperChar => 'Q')",
    "extract(DAY FROM DATE '2026-01-31')",
    "trim(BOTH 'x' FROM 'xax')",
    "trim('x' FROM 'xa')",
    "trim(' a ')",
    "trim(LEADING FROM ' a ')",
    "substring('abc' FROM 2 FOR 1)",
    "overlay('abc' PLACING 'x' FROM 2)",
    "position('b' IN 'abc')",
    "position('b', 'abc')",
    "date_add(DAY, 1, DATE '2026-01-31')",
    "date_add(DATE '2026-01-31', 1)",
    "timestampdiff(HOUR, TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-02')",
    "left('abc', 2)",
    "right('abc', 2)",
    "if(true, 1, 2)",
    "(1, 'a').col2",
    "'a' COLLATE UTF8_LCASE = 'A'",
    "concat_ws(',', 'a', 'b')",
    "`upper`('a')",
    "from_json('{\"a\":1}', 'a int').a",
    "cast(struct(1) AS struct<`a b`: bigint>).`a b`",
    "5 / 2",
    "coalesce(null, 'x')",
    "nvl2(null, 1, 2)",
]


def test_every_function_of_spark_was_reviewed(spark: SparkSession) -> None:
    assert {*examples(spark)} - {*functions()} == TABLES_OF_SPARK
    for name, function in functions().items():
        if function.kind not in ALLOWED:
            assert check_expression(f"{name}(a)")
            assert check_expression(f"`{name.upper()}` (a)")
        cyrillic = name.replace("a", "\u0430").replace("e", "\u0435")
        assert cyrillic == name or "no function of Spark" in str(check_expression(f"{cyrillic}(b)"))


TABLES_OF_SPARK: set[str] = set()  # table functions of Spark that nothing may call


def test_values_stay_the_same(spark: SparkSession) -> None:
    """One row of many columns from the text itself, and one from what we write."""
    mine = [written(text) for text in LITERALS]
    assert None not in mine, LITERALS[mine.index(None)]
    plain = [text.replace("${", "\\u0024{") for text in LITERALS]  # Spark would put the environment there
    names = ", ".join(f"{text} AS c{place}" for place, text in enumerate(plain))
    ours = ", ".join(f"{text} AS c{place}" for place, text in enumerate(mine))
    (expected,), (found,) = spark.sql(f"SELECT {names}").collect(), spark.sql(f"SELECT {ours}").collect()
    pairs = zip(LITERALS, expected, found, strict=True)
    assert [(text, one, two) for text, one, two in pairs if one != two] == []


def test_examples_of_functions_mean_the_same(spark: SparkSession) -> None:
    accepted, wrong = 0, []
    for name, texts in examples(spark).items():
        if name in functions() and functions()[name].kind in ALLOWED:
            for place, text in enumerate(texts):
                shaped = SHAPES[place % len(SHAPES)].format(text)
                accepted += written(text) is not None
                wrong += filter(None, (differs(spark, text), differs(spark, shaped)))
    assert wrong == []
    assert accepted > 700


def test_statements_mean_the_same(spark: SparkSession) -> None:
    assert [text for text in STATEMENTS if written(text, is_query=True) is None] == REFUSED_STATEMENTS
    wrong = [differs(spark, text, is_query=True) for text in STATEMENTS]
    assert [*filter(None, wrong)] == []


# Brackets say what belongs together.
REFUSED_STATEMENTS = ["SELECT a FROM stream EXCEPT SELECT a FROM users INTERSECT SELECT b FROM users"]


def test_hostile_text_is_refused_or_means_the_same(spark: SparkSession) -> None:
    known = [texts[0] for texts in examples(spark).values() if texts]
    chance = random.Random(7)
    texts = [shape.format(*chance.choices(known, k=1) * 3) for shape in HOSTILE for _ in range(8)]
    assert [*filter(None, (differs(spark, text) for text in texts))] == []
    fuzz(spark, FUZZED, 1)


@pytest.mark.faults
def test_much_hostile_text_is_refused_or_means_the_same(spark: SparkSession) -> None:
    for texts in examples(spark).values():
        for text in texts[:1]:
            hostile = (differs(spark, shape.format(*[text] * 3)) for shape in (*HOSTILE, *SHAPES))
            assert [*filter(None, hostile)] == []
    fuzz(spark, FUZZED_IN_FULL, 2)


@pytest.mark.faults
def test_rows_of_examples_stay_the_same(spark: SparkSession) -> None:
    compared = 0
    for text in (text for texts in examples(spark).values() for text in texts):
        mine = written(text)
        if mine is not None and check_condition(text) is None:
            expected, found = value_of(spark, text), value_of(spark, mine)
            compared += expected is not None
            assert found == expected, text
    assert compared > 600


def value_of(spark: SparkSession, text: str) -> str | None:
    """The rows as text, or None if Spark reports an error."""
    try:
        return str(spark.sql(f"SELECT {text}").collect())
    except Exception:  # noqa: BLE001 (Spark's or Java's error)
        return None


def fuzz(spark: SparkSession, count: int, seed: int) -> None:
    known = [*GOOD_EXPRESSIONS, *LITERALS, *CLOCKS, *FIXED_TIMES, *FROZEN_TIMES, *BAD_EXPRESSIONS[1:-10]]
    known += [text for texts in examples(spark).values() for text in texts]
    wrong = [differs(spark, text) for text in mutations(known, count, seed)]
    queries = mutations([*STATEMENTS, *BAD_QUERIES[1:]], count // 2, seed)
    wrong += [differs(spark, text, is_query=True) for text in queries]
    assert [*filter(None, wrong)] == []
