"""User input: split at semicolons, parsed into statements, or refused with a position."""

from __future__ import annotations

import pytest

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.statements import (
    CreatePipeline,
    CreateTable,
    Describe,
    DropTable,
    Explain,
    Help,
    Part,
    Quit,
    Select,
    SetOption,
    Show,
    Statement,
    place_of,
    read_statement,
    split,
)
from ottla.pipelines.sql.tables import Table


def texts(text: str) -> tuple[list[str], str]:
    parts, rest = split(text)
    return [part.text.strip() for part in parts], rest.text.strip()


@pytest.mark.parametrize(
    ("text", "parts", "rest"),
    [
        ("", [], ""),
        (";;", [], ""),
        ("a; b;", ["a", "b"], ""),
        ("a; b", ["a"], "b"),
        ("SELECT ';' ; x", ["SELECT ';'"], "x"),
        ('SELECT `;`, ";" -- ;\n/* ; */;', ['SELECT `;`, ";" -- ;\n/* ; */'], ""),
        ("-- only words; nothing else\n", [], ""),
        ("a; SELECT 'open ; b", ["a"], "SELECT 'open ; b"),
        ("a /* open ; b", [], "a /* open ; b"),
        ("SELECT 'it''s; so';", ["SELECT 'it''s; so'"], ""),
    ],
)
def test_only_semicolons_outside_of_quotes_and_comments_end_a_statement(text: str, parts: list[str], rest: str) -> None:
    assert texts(text) == (parts, rest)


def test_a_statement_knows_where_it_begins() -> None:
    text = "SHOW TABLES;\n SELECT x"
    assert split(text).rest == Part("\n SELECT x", 12)
    assert place_of(text, 14) == (2, 2)
    assert place_of(text, 0) == (1, 1)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SELECT 1", Select("SELECT 1")),
        (" with a as (select 1) select * from a", Select("with a as (select 1) select * from a", 1)),
        ("SELECT * FROM a EMIT CHANGES", Select("SELECT * FROM a ", 0, True)),
        ("select * from a emit changes limit 5", Select("select * from a ", 0, True, 5)),
        ("SELECT * FROM a LIMIT 5 EMIT CHANGES", Select("SELECT * FROM a ", 0, True, 5)),
        ("SELECT emit FROM changes", Select("SELECT emit FROM changes")),
        ("LIST STREAMS", Show("TABLES")),
        ("SHOW QUERIES", Show("PIPELINES")),
        ("DESCRIBE EXTENDED t", Describe("t")),
        ("DESCRIBE t EXTENDED", Describe("t")),
        ("DESCRIBE extended", Describe("extended")),
        ("EXPLAIN SELECT 1", Explain(Select("SELECT 1", 8))),
        ("EXPLAIN PLAN FOR SELECT 1", Explain(Select("SELECT 1", 17))),
        (
            "SELECT /*+ BROADCAST(b) */ '/*+ OPTIONS(' FROM a",
            Select("SELECT /*+ BROADCAST(b) */ '/*+ OPTIONS(' FROM a"),
        ),
        ("SELECT sum(a) OVER (PARTITION BY b) FROM a", Select("SELECT sum(a) OVER (PARTITION BY b) FROM a")),
        ("SHOW topics", Show("TOPICS")),
        ("DESC `page-views`", Describe("page-views")),
        ("DROP TABLE IF EXISTS Orders", DropTable("Orders", True)),
        ("SET 'auto.offset.reset' = 'earliest'", SetOption("auto.offset.reset", "earliest")),
        ("SET auto.offset.reset=latest", SetOption("auto.offset.reset", "latest")),
        ("SET", SetOption()),
        ("help", Help()),
        ("exit", Quit()),
    ],
)
def test_statements(text: str, statement: Statement) -> None:
    assert read_statement(text) == statement


def test_a_table_as_flink_has_it() -> None:
    read = read_statement(
        """CREATE TABLE Orders (
             id BIGINT NOT NULL, tags ARRAY<ARRAY<VARCHAR(20)>>, place ROW<city STRING, zip INT>, price DECIMAL(10, 2),
             at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND
           ) WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json',
                   'scan.startup.mode' = 'earliest-offset')"""
    )
    columns = {
        "id": "bigint",
        "tags": "array<array<string>>",
        "place": "struct<city string,zip int>",
        "price": "decimal(10,2)",
        "at": "timestamp",
    }
    table = Table(
        "Orders",
        "orders",
        columns=columns,
        required=("id",),
        event_time="at",
        delay="5 second",
        starting="earliest",
    )
    assert read == CreateTable(table)


def test_a_table_as_ksqldb_has_it() -> None:
    read = read_statement(
        "CREATE OR REPLACE TABLE users (id VARCHAR PRIMARY KEY, name VARCHAR) "
        "WITH (kafka_topic='u', value_format='CSV')"
    )
    columns = {"id": "string", "name": "string"}
    assert read == CreateTable(Table("users", "u", "csv", columns, key=("id",), in_record_key="id"), or_replace=True)
    assert read_statement("CREATE STREAM IF NOT EXISTS s WITH (timestamp='ROWTIME')") == CreateTable(
        Table("s", "s", event_time="ROWTIME"), if_not_exists=True
    )
    assert read_statement("CREATE STREAM s (k INT KEY COMMENT 'number', v INT)") == CreateTable(
        Table("s", "s", columns={"k": "int", "v": "int"}, in_record_key="k")
    )


def test_a_pipeline_into_a_topic_or_a_table() -> None:
    read = read_statement(
        "CREATE PIPELINE big WITH (every = '5 seconds') AS SELECT extract(YEAR FROM at) AS y FROM o WHERE a > 1 "
        "INTO TOPIC `big-orders` KEY (y) WITH (partitions = 3, create = true)"
    )
    assert isinstance(read, CreatePipeline)
    assert read.select.text.strip() == "SELECT extract(YEAR FROM at) AS y FROM o WHERE a > 1"
    assert read.sink == {"topic": "big-orders", "key": ["y"], "partitions": 3, "create": True}
    assert read.options == {"every": "5 seconds"}
    read = read_statement("CREATE PIPELINE p AS SELECT 1 FROM o INTO TABLE t WITH (sqlite = 'a.db')")
    assert isinstance(read, CreatePipeline)
    assert read.sink == {"table": "t", "sqlite": "a.db"}


@pytest.mark.parametrize(
    ("text", "words", "at"),
    [
        ("SELEC 1", "begins with 'SELEC'", 0),
        ("SHOW\n FISH", "'FISH' where TABLES or TOPICS or PIPELINES should stand", 6),
        ("SHOW", "nothing where TABLES", 4),
        ("SHOW TABLES now", "'now' where it should end", 12),
        ("SELECT 'open", "has a quote (') that is never closed", 7),
        ("SELECT a FROM t /* open", "has a comment that is never closed", 16),
        ("SELECT ?", "has '?' at character 8, which is not SQL", 7),
        ("SELECT (1", "never closed", 7),
        ("SELECT 1 FROM a EMIT CHANGES WHERE x", "only LIMIT n", 29),
        ("EXPLAIN DROP", "needs a SELECT", 8),
        ("CREATE TABLE t (id FISH)", "'fish' is not a type", 19),
        ("CREATE TABLE t (id INT, ID INT)", "column 'ID' twice", 27),
        ("CREATE TABLE t (id INT, PRIMARY KEY (x))", "the key 'x', which is none of its columns", None),
        ("CREATE TABLE t (at INT) WITH (event_time = 'at')", "is int and not timestamp", None),
        ("CREATE TABLE t WITH (fish = 1)", "option 'fish'", None),
        ("CREATE TABLE t WITH (connector = 'jdbc')", "tables are topics", None),
        ("CREATE TABLE t WITH (format = 'xml')", "format 'xml'", None),
        ("CREATE TABLE t WITH (watermark = 'soon')", "watermark 'soon'", None),
        ("CREATE TABLE t (a INT) WITH (schema = 'f.json')", "one of them is enough", None),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS b)", "another column than a", None),
        ("CREATE PIPELINE p AS SELECT 1 FROM o", "does not say where to", None),
        ("CREATE PIPELINE p AS SELECT 1 FROM o INTO TABLE t", "in which database", None),
        ("INSERT INTO a SELECT * FROM b", "write CREATE PIPELINE name AS SELECT … INTO TOPIC name", 0),
        ("CREATE STREAM a AS SELECT * FROM b", "write CREATE PIPELINE name AS SELECT … INTO TOPIC name", 16),
        ("CREATE VIEW v AS SELECT 1 FROM o", "write WITH name AS", 7),
        ("CREATE TABLE t (a INT, p AS PROCTIME())", "compute it in the SELECT", None),
        ("CREATE TABLE t (a TIMESTAMP METADATA FROM 'timestamp')", "rowtime, rowkey", 28),
        ("CREATE TABLE t WITH ('properties.bootstrap.servers' = 'a:1')", "ottla sql --bootstrap-server", None),
        ("CREATE TABLE t WITH ('json.ignore-parse-errors' = 'true')", "unreadable = 'skip'", None),
        ("CREATE TABLE t WITH (format = 'avro-confluent')", "encoding = 'confluent'", None),
        ("CREATE TABLE t (a BIGINT) WITH (timestamp = 'a')", "timestamp_format = 'epoch milliseconds'", None),
        ("SELECT json_value(a, '$.b') FROM t", "write get_json_object(text, '$.name')", 7),
        (
            "SELECT k, count(*) FROM t WINDOW HOPPING (SIZE 30 SECONDS, ADVANCE BY 10 SECONDS, GRACE PERIOD 1 DAY)",
            "write GROUP BY …, window(rowtime, '30 seconds', '10 seconds'),",
            26,
        ),
        ("SELECT 1 FROM t WINDOW SESSION (1 HOURS)", "write GROUP BY …, session_window(rowtime, '1 hours'),", 16),
        ("SELECT 1 FROM a JOIN b WITHIN 1 HOUR ON x", "BETWEEN a.time - INTERVAL 1 HOUR", 23),
        ("SELECT 1 FROM a JOIN b FOR SYSTEM_TIME AS OF a.t", "as_of of a pipeline", 23),
        ("SELECT a FROM t /*+ OPTIONS('scan.startup.mode' = 'x') */", "has a hint that changes its rows", 16),
        ("SELECT a FROM t PARTITION BY a EMIT CHANGES", "INTO TOPIC name KEY (column)", 16),
        ("SELECT a FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(a), INTERVAL '1' DAY))", "write TUMBLE windows of", 20),
        ("CREATE PIPELINE p AS SELECT a FROM t EMIT CHANGES LIMIT 5 INTO TOPIC x", "leave it out", 56),
        ("DROP PIPELINE p", "use ottla pipeline stop NAME", 5),
        ("DROP STREAM IF EXISTS s DELETE TOPIC", "use ottla topics delete", 24),
        ("SELECT geo_distance(a, b, 1, 2) FROM t", "write 2 * 6371 * asin(sqrt(", 7),
        ("SELECT 1 FROM t CROSS JOIN UNNEST(t.tags) AS u (tag)", "LATERAL VIEW explode(list) e AS entry", 27),
        ("SELECT place->zip FROM t", "written with a dot, column.field", 12),
        ("SELECT floor(at TO HOUR) FROM t", "write date_trunc('hour', time)", 16),
        ("SELECT a FROM t FETCH FIRST 3 ROWS ONLY", "write LIMIT n", 16),
        ("SHOW COLUMNS FROM t", "write DESCRIBE name", 5),
        ("DROP DATABASE x", "where TABLE or STREAM should stand", 5),
        ("SET x = (", "never closed", 8),
        ("-- nothing", "is empty", None),
    ],
)
def test_errors_have_a_position(text: str, words: str, at: int | None) -> None:
    with pytest.raises(SqlError) as problem:
        read_statement(text)
    assert words in str(problem.value)
    if at is not None:
        assert problem.value.at == at


@pytest.mark.parametrize(
    "text",
    [
        "SELECT transform(a, x -> x + 1) FROM t",
        "SELECT date_add(INTERVAL '1-2' YEAR TO MONTH) FROM t",
        "SELECT CAST(a AS INTERVAL DAY TO SECOND) FROM t",
        "SELECT fetch, to FROM t",
    ],
)
def test_names_that_equal_other_dialects_words_are_left_to_spark(text: str) -> None:
    assert read_statement(text) == Select(text)


def test_types_of_several_words() -> None:
    types = "a DOUBLE PRECISION, b TIMESTAMP(3) WITH LOCAL TIME ZONE, c TIMESTAMP WITHOUT TIME ZONE NOT NULL"
    statement = read_statement(f"CREATE TABLE t ({types})")
    assert isinstance(statement, CreateTable)
    assert statement.table.columns == {"a": "double", "b": "timestamp", "c": "timestamp"}
    assert statement.table.required == ("c",)
