"""Words of Flink SQL and ksqlDB that have another form here: each is refused with a hint what to write.

Only words without a meaning in Spark SQL are listed; all others are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.tokens import END, PIECES, Token

INTO_TOPIC: Final = "write CREATE PIPELINE name AS SELECT … INTO TOPIC name"
STATEMENTS: Final = {
    "INSERT": f"{INTO_TOPIC}; single records are written with ottla produce",
    "PRINT": "write SELECT * FROM topic, or use ottla consume",
    "TERMINATE": "use ottla pipeline stop NAME",
    "PAUSE": "use ottla pipeline stop NAME",
    "RESUME": "use ottla pipeline run FILE",
    "STOP": "use ottla pipeline stop NAME",
    "USE": "there is one cluster and no catalog: leave it out",
    "ALTER": "write CREATE OR REPLACE TABLE; topics are changed with ottla topics",
    "DELETE": "records of a topic are not changed; ottla records delete removes the oldest",
    "UPDATE": "records of a topic are not changed: the newest record of a key counts in a table with a PRIMARY KEY",
    "MERGE": "records of a topic are not changed: the newest record of a key counts in a table with a PRIMARY KEY",
    "VALUES": "write SELECT … FROM topic",
    "RUN": "use ottla sql -f FILE",
    "SOURCE": "use ottla sql -f FILE",
    "DEFINE": "variables are not known: write the value",
    "BEGIN": "each statement is separate: leave it out",
    "EXECUTE": f"{INTO_TOPIC}, one for each",
    "LOAD": "tables are topics: leave it out",
}
CREATED: Final = {
    "VIEW": "write WITH name AS (SELECT …) SELECT … FROM name, or CREATE PIPELINE name AS SELECT … INTO TOPIC name",
    "TEMPORARY": "a table is always for this session: write CREATE TABLE",
    "SOURCE": "write CREATE TABLE or CREATE STREAM",
    "FUNCTION": "functions of your own are the step python of a pipeline",
    "TYPE": "write the type itself, STRUCT<…>",
    "CATALOG": "there is one cluster and no catalog: leave it out",
    "DATABASE": "there is one cluster and no catalog: leave it out",
    "TOPIC": "use ottla topics create",
    "CONNECTOR": "a pipeline reads and writes: CREATE PIPELINE",
}
OF_PIPELINES: Final = "use ottla pipeline stop NAME, and delete NAME.yaml"
NOT_THERE: Final = {
    ("DROP", "PIPELINE"): OF_PIPELINES,
    ("DROP", "QUERY"): OF_PIPELINES,
    ("DROP", "TOPIC"): "use ottla topics delete",
    ("DROP", "VIEW"): "there are no views; declarations are removed with DROP TABLE",
    ("SHOW", "COLUMNS"): "write DESCRIBE name",
    ("SHOW", "CREATE"): "write DESCRIBE name",
    ("SHOW", "FUNCTIONS"): "functions are those of Spark's SQL",
    ("LIST", "FUNCTIONS"): "functions are those of Spark's SQL",
    ("SHOW", "VIEWS"): "write SHOW TABLES",
    ("SHOW", "PROPERTIES"): "write SET",
}
OF_VALUES: Final = "FILTER (WHERE column IS NOT NULL) (with rowtime if a group is in several partitions)"
FUNCTIONS: Final = {
    **dict.fromkeys(("JSON_VALUE", "JSON_QUERY", "EXTRACTJSONFIELD"), "get_json_object(text, '$.name')"),
    "JSON_EXISTS": "get_json_object(text, '$.name') IS NOT NULL",
    **dict.fromkeys(
        ("TIMESTAMPTOSTRING", "FORMAT_TIMESTAMP", "DATETOSTRING", "FORMAT_DATE"),
        "date_format(time, 'yyyy-MM-dd HH:mm')",
    ),
    **dict.fromkeys(("STRINGTOTIMESTAMP", "PARSE_TIMESTAMP"), "to_timestamp(text, 'yyyy-MM-dd HH:mm')"),
    **dict.fromkeys(("STRINGTODATE", "PARSE_DATE"), "to_date(text, 'yyyy-MM-dd')"),
    "LATEST_BY_OFFSET": f"max_by(column, rowoffset) {OF_VALUES}",
    "EARLIEST_BY_OFFSET": f"min_by(column, rowoffset) {OF_VALUES}",
    "COUNT_DISTINCT": "count(DISTINCT column), or with EMIT CHANGES size(collect_set(column))",
    **dict.fromkeys(("PROCTIME", "CURRENT_ROW_TIMESTAMP"), "now(), or rowtime: when the record was written"),
    "AS_VALUE": "the column itself",
    "ARRAY_LENGTH": "array_size(list)",
    "UNNEST": "FROM t LATERAL VIEW explode(list) e AS entry (LATERAL VIEW OUTER keeps rows with an empty list)",
    "GEO_DISTANCE": "2 * 6371 * asin(sqrt(pow(sin(radians(lat2 - lat1) / 2), 2) + cos(radians(lat1)) * "
    "cos(radians(lat2)) * pow(sin(radians(lon2 - lon1) / 2), 2))), in km",
    **dict.fromkeys(("TOPK", "TOPKDISTINCT"), "slice(sort_array(collect_list(column), false), 1, 3)"),
}
# The names of a record's columns in Spark's own Kafka source.
OF_RECORDS: Final = {"key": "rowkey", "timestamp": "rowtime", "partition": "rowpartition", "offset": "rowoffset"}
FORMAT_CURES: Final = {
    "avro-confluent": "write format = 'avro', encoding = 'confluent', schemas = 'folder with the writers' schemas'",
    "json_sr": "write format = 'json', encoding = 'confluent'",
    "protobuf_nosr": "write format = 'protobuf', schema = 'file.proto', message = 'package.Message', without columns",
    "debezium-json": "that is the step parse of a pipeline, format: debezium",
}
LEAVE_OUT: Final = {
    "properties.bootstrap.servers": "but there is one cluster: leave it out (ottla sql --bootstrap-server)",
    **dict.fromkeys(("partitions", "replicas"), "but tables are existing topics: leave it out (ottla topics create)"),
    **dict.fromkeys(
        ("key_format", "key.format", "key.fields", "value.fields-include"),
        "but the key of a record is text, the column rowkey: leave it out",
    ),
    "json.timestamp-format.standard": "but both ways to write times are read: leave it out",
    "json.fail-on-missing-field": "instead write NOT NULL behind the columns",
}
HINTS: Final = re.compile(r"/\*\+\s*(?:OPTIONS|STATE_TTL)\b", re.IGNORECASE)  # hints of Flink that change the result
MISSING: Final = re.compile(r"there is no column '(\w+)'")
TIME_UNITS: Final = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
KSQLDB_WINDOWS: Final = ("TUMBLING", "HOPPING", "SESSION")


def option_cure(key: str) -> str:
    """Return a hint for this option of WITH (…), or "" if no dialect has it."""
    if key in LEAVE_OUT:
        return LEAVE_OUT[key]
    if key.endswith(".ignore-parse-errors"):
        return "instead write unreadable = 'skip'"
    if key.startswith("properties."):
        return "but the client is that of the session: leave it out (ottla sql --command-config FILE)"
    return ""


def column_cure(words: str) -> str:
    """Return the name of the record's column here, if the error is about an unknown column."""
    missing = MISSING.match(words)
    found = OF_RECORDS.get(missing[1].lower()) if missing else None
    return f"{words}; that of the record is {found}" if found else words


def check_hints(text: str) -> None:
    """Refuse Flink's hints that change the result. Spark's hints only affect execution. Raises SqlError."""
    for piece in PIECES.finditer(text):
        if piece.lastgroup == "comment" and HINTS.match(piece[0]):
            wrong = SqlError("has a hint that changes its rows: leave it out, and declare the table WITH (…)")
            wrong.at = piece.start()
            raise wrong


def check_words(tokens: Sequence[Token]) -> None:
    """Check the words of a SELECT. Raises SqlError."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += token.is_symbol("(") - token.is_symbol(")")
        problem = _problem(tokens, place) or (_outside(tokens, place) if depth == 0 else "")
        if problem:
            wrong = SqlError(problem)
            wrong.at = token.start
            raise wrong


def _problem(tokens: Sequence[Token], place: int) -> str:
    words = [token.word for token in tokens[place : place + 4]]
    after = tokens[place + 1] if place + 1 < len(tokens) else END
    if words[0] in FUNCTIONS and after.is_symbol("("):
        return f"calls {words[0]}(): write {FUNCTIONS[words[0]]}"
    if words[0] == "WINDOW" and words[1:2] and words[1] in KSQLDB_WINDOWS:
        return f"has a WINDOW of ksqlDB: write {_window(tokens[place + 1 :])}"
    if words == ["FOR", "SYSTEM_TIME", "AS", "OF"]:
        return (
            "has FOR SYSTEM_TIME AS OF: leave it out to join a table with a PRIMARY KEY as it is now; "
            "what was valid at the time of a row is the step join with as_of of a pipeline"
        )
    if words[0] == "MATCH_RECOGNIZE":
        return "has MATCH_RECOGNIZE: that is the step pattern of a pipeline"
    if words[:2] == ["EMIT", "FINAL"]:
        return "has EMIT FINAL: write CREATE PIPELINE, which emits windows once, when a watermark has closed them"
    if words[0] == "FETCH" and after.word in ("FIRST", "NEXT"):
        return "has FETCH: write LIMIT n"
    is_interval = bool(place) and tokens[place - 1].word in TIME_UNITS  # DAY TO SECOND
    if words[0] == "TO" and not is_interval and after.word in TIME_UNITS and "" in words[2:3]:
        return f"has TO {after.word}: write date_trunc('{after.word.lower()}', time)"
    if words[0] == "WITHIN" and after.kind == "number":
        return "has WITHIN: write ON … AND b.time BETWEEN a.time - INTERVAL 1 HOUR AND a.time + INTERVAL 1 HOUR"
    return ""


def _outside(tokens: Sequence[Token], place: int) -> str:
    """Refuse ksqlDB's PARTITION BY and struct access outside brackets."""
    words = [token.word for token in tokens[place : place + 2]]
    if tokens[place].is_symbol("->"):
        return "has ->: a field of a struct is written with a dot, column.field"
    if words != ["PARTITION", "BY"]:
        return ""
    return "has PARTITION BY: write CREATE PIPELINE name AS SELECT … INTO TOPIC name KEY (column)"


def _window(tokens: Sequence[Token]) -> str:
    """Translate (SIZE 30 SECONDS, ADVANCE BY 10 SECONDS, …) and SESSION (60 SECONDS) to Spark's functions."""
    lengths: list[str] = []
    for token, unit in pairwise(tokens):
        if token.is_symbol(")"):
            break
        if token.kind == "number":
            lengths.append(f"'{token.text} {unit.text.lower()}'")
    kept = ", ".join(lengths[: 2 if tokens[0].word == "HOPPING" else 1])
    is_session = tokens[0].word == "SESSION"
    function = "session_window" if is_session else "window"
    watermark = "; with EMIT CHANGES it must be the event_time of the table" if is_session else ""
    return (
        f"GROUP BY …, {function}(rowtime, {kept}), with {function}.start and {function}.end in the SELECT "
        f"(rowtime, or the column that is the time of a row{watermark})"
    )
