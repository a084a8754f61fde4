"""Pairs of an expression and a record: rows that `raises` finds, against plain Spark.

The expressions are random trees over columns of all kinds; many fail with some of the records. One job flags all
pairs. Then plain Spark decides: the expressions run without any guard, each on the rows that were not flagged, all in
one job, which must not fail; and every flagged pair runs alone, one expression on one row, which must fail.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.sinks.batch import run_plan
from ottla.pipelines.steps.failing_values import raises

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEXTS = (
    "1",
    "-7",
    "abc",
    "",
    " 12 ",
    "99999999999",
    "1.5",
    "1e400",
    "NaN",
    "2026-02-29",
    "2024-02-29",
    "true",
    "[1,2]",
    '{"a":1}',
    "2026-01-01 25:00:00",
    "(",
    "\u0663",
    "é",
    "P1D",
    "http://h/?a=%zz",
)
SCHEMA = (
    "id int, n string, s string, i int, l bigint, d double, c decimal(10,2), y tinyint, o boolean, "
    "t timestamp, e date, a array<string>, k array<int>, m map<string,string>, r struct<x:string,z:int>"
)
DEPTH = 3
# Left out: -2147483648, with which `element_at(array, n)` ends Java itself (Spark 4.2.1, compiled plans, guard or
# not); format_string, which once ended the query in spite of the guard; what `compute` does not try.
KINDS = ("int", "bigint", "double", "string", "boolean", "date", "timestamp", "decimal")


class Pair(NamedTuple):
    expression: str
    record: int


def records(chance: random.Random, count: int) -> list[tuple[str, ...]]:
    """SQL literals, so that one row alone can be written into a query."""
    return [(str(number), *_literals(chance)) for number in range(count)]


def _literals(chance: random.Random) -> list[str]:
    def text() -> str:
        value = chance.choice(TEXTS).replace("'", "''")
        return f"'{value}'"

    def array(one: Any, kind: str) -> str:
        return f"cast(array({', '.join(one() for _ in range(chance.randrange(4)))}) as array<{kind}>)"

    def whole() -> str:
        return str(chance.choice((0, 1, 2, 3, -1, 7, 2147483647, -2147483647)))

    values = [
        text(),
        text(),
        f"cast({whole()} as int)",
        f"cast({chance.choice((0, 1, -1, 5, 9223372036854775807, -9223372036854775807))} as bigint)",
        f"cast('{chance.choice(('0', '1.5', '-2', 'NaN', 'Infinity', '1e300'))}' as double)",
        f"cast({chance.choice((0, 1, 99999999, -3))} as decimal(10,2))",
        f"cast({chance.choice((0, 1, 127, -128))} as tinyint)",
        chance.choice(("true", "false")),
        f"timestamp '{chance.choice(('1970-01-01 00:00:00', '2026-11-19 12:30:00', '9999-12-31 23:59:59'))}'",
        f"date '{chance.choice(('1970-01-01', '2024-02-29', '9999-12-31'))}'",
        array(text, "string"),
        array(whole, "int"),
        f"map('a', {text()}, 'b', {text()})",
        f"named_struct('x', {text()}, 'z', cast({whole()} as int))",
    ]
    kinds = [part.strip().split(" ", 1)[1] for part in _columns()][1:]
    return [
        f"cast(null as {kind})" if chance.random() < 0.1 else value for value, kind in zip(values, kinds, strict=True)
    ]


def _columns() -> list[str]:
    found, depth = [""], 0
    for letter in SCHEMA:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return found


class Maker:
    """Random expressions by type. Casts everywhere: they are what fails most often."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def __repr__(self) -> str:
        return "Maker()"

    def of(self, kind: str, depth: int = DEPTH) -> str:
        if depth <= 0:
            return self._leaf(kind)
        forms = [*FORMS[kind], *SHARED, *SHARED]
        form = self.chance.choice(forms)
        return self._filled(form.replace("@@", f"@{kind}"), depth, kind)

    def _filled(self, form: str, depth: int, kind: str) -> str:
        out = ""
        parts = form.split("@")
        out = parts[0]
        for part in parts[1:]:
            wanted = next((each for each in (*KINDS, "any") if part.startswith(each)), None)
            assert wanted is not None, form
            chosen = self.chance.choice(KINDS) if wanted == "any" else wanted
            out += self.of(chosen, depth - self.chance.choice((1, 1, 2))) + part[len(wanted) :]
        return out.replace("#", "decimal(12,3)" if kind == "decimal" else kind)

    def _leaf(self, kind: str) -> str:
        return self.chance.choice(LEAVES[kind])


LEAVES = {
    "int": ("i", "r.z", "1", "0", "length(n)", "y", "cast(s as int)", "k[0]"),
    "bigint": ("l", "3L", "bigint(i)", "7L"),
    "double": ("d", "double(i)", "0.5D", "double(c)"),
    "string": ("n", "s", "'x'", "a[0]", "m['a']", "m['b']", "r.x", "'12'", "'2026-01-31'", "cast(i as string)"),
    "boolean": ("o", "true", "n IS NULL", "i > 0", "i > 1", "s LIKE '%1%'"),
    "date": ("e", "date '2026-01-31'", "date(t)", "to_date(s)"),
    "timestamp": ("t", "timestamp(e)", "timestamp '2026-01-01 00:00:00'", "to_timestamp(s)"),
    "decimal": ("c", "cast(i % 1000 as decimal(12,3))", "cast(d as decimal(12,3))", "1.5BD"),
}
SHARED = (
    "if(@boolean, @@, @@)",
    "CASE WHEN @boolean THEN @@ WHEN @boolean THEN @@ ELSE @@ END",
    "coalesce(@@, @@)",
    "nullif(@@, @@)",
    "nvl2(@any, @@, @@)",
    "cast(@string as #)",
    "try_cast(@string as #)",
    "element_at(array(@@, @@), @int)",
    "array(@@, @@)[@int]",
    "get(array(@@, @@), @int)",
    "named_struct('x', @@, 'y', @any).x",
    "element_at(transform(array(@@), x -> x), 1)",
    "aggregate(k, @@, (left, right) -> if(right > 1, left, @@))",
    "try_element_at(filter(array(@@, @@), x -> x IS NOT NULL AND @boolean), 1)",
    "greatest(@@, @@)",
    "array_max(array(@@, @@))",
)
FORMS: dict[str, tuple[str, ...]] = {
    "int": (
        "@int + @int",
        "@int * @int",
        "- @int",
        "@int % @int",
        "@int div @int",
        "abs(@int)",
        "cast(@bigint as int)",
        "cast(@double as int)",
        "length(@string)",
        "cast(element_at(transform(a, x -> cast(x as int)), 1) as int)",
        "aggregate(a, 0, (x, z) -> x + cast(z as int))",
        "datediff(@date, @date)",
        "month(@date)",
        "size(@any_array)",
        "find_in_set(@string, @string)",
        "instr(@string, @string)",
        "cast(@string as int) + cast(@string as int)",
        "pmod(@int, @int)",
        "bit_get(@int, @int)",
        "array_position(k, @int)",
        "ascii(@string)",
        "cardinality(sequence(1, @int % 50, @int))",
        "date_part('year', @timestamp)",
        "regexp_count(@string, @string)",
        "extract(minute FROM @timestamp)",
    ),
    "bigint": (
        "@bigint + @bigint",
        "@bigint * @int",
        "@bigint div @bigint",
        "@bigint % @bigint",
        "unix_timestamp(@timestamp)",
        "cast(@decimal as bigint)",
        "factorial(@int)",
        "unix_millis(@timestamp)",
        "to_unix_timestamp(@string)",
        "- @bigint",
        "ceil(@double)",
        "bit_count(@bigint)",
        "reduce(k, 0L, (x, z) -> x + z * @bigint)",
    ),
    "double": (
        "@double / @double",
        "@int / @int",
        "sqrt(@double)",
        "ln(@double)",
        "@double + @int",
        "pow(@double, @int)",
        "round(@double, 2)",
        "acos(@double)",
        "@double % @double",
    ),
    "string": (
        "concat(@string, @string)",
        "substring(@string, @int, @int)",
        "upper(@string)",
        "split_part(@string, 'a', @int)",
        "elt(@int, @string, @string)",
        "cast(@any as string)",
        "lpad(@string, @int % 100, 'ab')",
        "date_format(@date, 'yyyy')",
        "regexp_replace(@string, @string, 'x')",
        "regexp_extract(@string, '(a)', @int)",
        "from_utc_timestamp(@timestamp, @string)",
        "parse_url(@string, 'QUERY', @string)",
        "conv(@string, 10, @int)",
        "hex(@string)",
        "get_json_object(@string, '$.a')",
        "decode(encode(@string, 'UTF-16'), 'UTF-8')",
        "concat_ws(',', transform(k, x -> cast(10 div x as string)))",
        "substring_index(@string, 'a', @int)",
        "repeat(@string, @int % 10)",
        "cast(unhex(@string) as string)",
        "format_number(@double, 2)",
        "translate(@string, 'a', 'b')",
        "array_join(array_repeat(@string, @int % 9), '-')",
        "cast(unbase64(@string) as string)",
        "array_join(slice(a, @int, @int), ',')",
    ),
    "boolean": (
        "@boolean AND @boolean",
        "@boolean OR @boolean",
        "NOT @boolean",
        "@any IS NULL",
        "@int > @int",
        "@string = @string",
        "@string = @int",
        "@string RLIKE @string",
        "exists(a, x -> cast(x as int) > 0)",
        "forall(k, x -> 10 % x = 0)",
        "@int IN (1, @int)",
        "array_contains(k, @int)",
        "@date < @timestamp",
        "@string BETWEEN @int AND 5",
        "@int <=> @int",
        "exists(k, x -> x > @int)",
        "cast(@string as boolean)",
        "@double = @string",
    ),
    "date": (
        "to_date(@string, 'yyyy-MM-dd')",
        "date_add(@date, @int)",
        "make_date(@int, @int, @int)",
        "last_day(@date)",
        "add_months(@date, @int)",
        "next_day(@date, @string)",
        "trunc(@date, @string)",
        "date(@timestamp)",
        "date_from_unix_date(@int)",
    ),
    "timestamp": (
        "to_timestamp(@string, 'yyyy-MM-dd HH:mm:ss')",
        "timestamp_seconds(@bigint)",
        "timestamp_millis(@bigint)",
        "make_timestamp(@int, 1, @int, 0, 0, 0)",
        "date_trunc(@string, @timestamp)",
        "@timestamp + make_interval(@int)",
        "timestampadd(DAY, @int, @timestamp)",
        "@timestamp + interval '1' hour * @int",
        "convert_timezone('UTC', @string, @timestamp)",
        "@timestamp + make_dt_interval(@int, @int)",
    ),
    "decimal": (
        "@decimal + @decimal",
        "@decimal * @decimal",
        "@decimal / @decimal",
        "cast(@double as decimal(12,3))",
        "cast(@decimal * @decimal as decimal(12,3))",
        "round(@decimal, 1)",
    ),
}


def table(spark: SparkSession, rows: Sequence[tuple[str, ...]]) -> DataFrame:
    """Not a local relation, which Spark would evaluate while it plans."""
    return spark.createDataFrame(relation(spark, rows).collect(), SCHEMA)


def relation(spark: SparkSession, rows: Sequence[tuple[str, ...]]) -> DataFrame:
    names = ", ".join(part.split()[0] for part in _columns())
    return spark.sql(f"SELECT * FROM VALUES {', '.join('(' + ', '.join(row) + ')' for row in rows)} AS t({names})")


def usable(spark: SparkSession, rows: DataFrame, seed: int, count: int) -> list[str]:
    """The first expressions of this seed that Spark can analyse, none twice."""
    maker = Maker(random.Random(seed))
    found: dict[str, None] = {}
    while len(found) < count:
        text = maker.of(maker.chance.choice(KINDS)).replace("@any_array", "a")
        if text in found:
            continue
        try:
            rows.select(F.expr(text))
        except (PySparkException, Py4JJavaError):
            continue
        found[text] = None
    return list(found)


def disagreements(spark: SparkSession, seed: int, expressions: int, count: int) -> tuple[list[Pair], int]:
    """Pairs that are judged differently, and the number of pairs that fail."""
    literals = records(random.Random(seed), count)
    rows = table(spark, literals)
    texts = usable(spark, rows, seed, expressions)
    flags = rows.select("id", *(raises(F.expr(text)).alias(f"v{place}") for place, text in enumerate(texts))).collect()
    flagged = {Pair(text, row["id"]) for row in flags for text, fails in zip(texts, row[1:], strict=True) if fails}
    wrong = [pair for pair in sorted(flagged) if not _fails_alone(spark, pair, literals)]
    others = {text: [number for number in range(count) if Pair(text, number) not in flagged] for text in texts}
    if not _pass(rows, others):
        missed = [Pair(text, number) for text, own in others.items() if not _pass(rows, {text: own}) for number in own]
        wrong += [pair for pair in missed if _fails_alone(spark, pair, literals)]
    return wrong, len(flagged)


def _pass(rows: DataFrame, wanted: dict[str, list[int]]) -> bool:
    """Whether no expression fails with its rows. The rows are chosen by a branch: the others are not evaluated."""
    columns = [
        F.when(F.col("id").isin(own), F.expr(text)).alias(f"v{n}") for n, (text, own) in enumerate(wanted.items())
    ]
    try:
        run_plan(rows.select(*columns))
    except (PySparkException, Py4JJavaError):
        return False
    return True


def _fails_alone(spark: SparkSession, pair: Pair, literals: Sequence[tuple[str, ...]]) -> bool:
    try:
        run_plan(relation(spark, [literals[pair.record]]).select(F.expr(pair.expression)))
    except (PySparkException, Py4JJavaError):
        return True
    return False
