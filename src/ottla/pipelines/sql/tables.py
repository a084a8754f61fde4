"""The tables of `ottla sql`: topics whose records are rows, by declaration or samples. Pure.

A table is a stream of an ordinary pipeline; `stream_of` returns it in the form of a pipeline file. Queries may name
four columns of the record besides the table's own: `rowtime`, `rowkey`, `rowpartition`, `rowoffset`. With a primary
key, the table holds the newest row of each key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.other_words import FORMAT_CURES, option_cure

RECORD_COLUMNS = {
    "rowtime": "timestamp", "rowkey": "cast(key AS string)", "rowpartition": "partition", "rowoffset": "offset",
}  # fmt: skip
RECORD_TYPES = {"rowtime": "timestamp", "rowkey": "string", "rowpartition": "int", "rowoffset": "bigint"}
DELAY = "10 seconds"
FORMATS = ("json", "csv", "avro", "protobuf", "regex", "grok", "text")
SCHEMA_FORMATS = ("json", "csv", "avro", "protobuf")  # unreadable without a schema
CONNECTORS = ("kafka", "upsert-kafka")
STARTS = {"earliest-offset": "earliest", "latest-offset": "latest"}
PARSE_OPTIONS = (
    "delimiter", "quote", "null_text", "encoding", "charset", "pattern", "message", "schemas", "timestamp_format",
)  # fmt: skip
# As Flink and ksqlDB write them.
OTHER_NAMES = {
    "kafka_topic": "topic", "value_format": "format", "value_delimiter": "delimiter", "timestamp": "event_time",
    "scan.startup.mode": "starting", "value.format": "format",
}  # fmt: skip
OTHER_FORMATS = {"delimited": "csv", "raw": "text"}
OPTIONS = ("topic", "format", "schema", "event_time", "watermark", "starting", "unreadable", "strict", "connector")


@dataclass(frozen=True)
class Table:
    """A table. `columns` is empty if neither a declaration nor samples have any."""

    name: str
    topic: str
    format: str = "json"
    columns: Mapping[str, str] = field(default_factory=dict)  # name -> type
    schema_file: str | None = None
    required: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    in_record_key: str | None = None  # the column that is in the record's key, not in its value
    event_time: str | None = None
    delay: str = DELAY
    starting: str | None = None  # where a streaming query starts: earliest, latest, a time
    skips_unreadable: bool = False
    parsing: Mapping[str, object] = field(default_factory=dict)  # other fields of the step `parse`
    is_inferred: bool = False
    remarks: tuple[str, ...] = ()  # differences between declaration and samples

    @property
    def needs_samples(self) -> bool:
        return self.format in ("json", "csv") and not self.columns and self.schema_file is None


def declared(name: str, columns: Mapping[str, str], options: Mapping[str, str], **more: object) -> Table:
    """Build a table from the options of WITH (…). Raises SqlError."""
    given = {OTHER_NAMES.get(key, key): value for key, value in options.items()}
    for key in given:
        if key not in OPTIONS and key not in PARSE_OPTIONS:
            cure = option_cure(key) or f"which is not known; known: {', '.join(_known())}"
            raise SqlError(f"has the option {key!r} in WITH, {cure}")
    kind = given.get("format", "json").lower()
    kind = OTHER_FORMATS.get(kind, kind)
    if kind not in FORMATS:
        cure = FORMAT_CURES.get(kind) or f"known: {', '.join(FORMATS)}"
        raise SqlError(f"has format {kind!r}; {cure}")
    if given.get("connector", "kafka") not in CONNECTORS:
        raise SqlError(f"has connector {given['connector']!r}: tables are topics, leave it out")
    if given.get("unreadable", "fail") not in ("fail", "skip"):
        raise SqlError("has another word than fail or skip for 'unreadable'")
    if given.get("strict", "false") not in ("true", "false"):
        raise SqlError("has another word than true or false for 'strict'")
    if columns and "schema" in given:
        raise SqlError("has columns and a schema file: one of them is enough")
    parsing: dict[str, object] = {key: value for key, value in given.items() if key in PARSE_OPTIONS}
    parsing |= {"strict": True} if given.get("strict") == "true" else {}
    starting = given.get("starting")
    details: dict[str, object] = {
        "schema_file": given.get("schema"),
        "event_time": given.get("event_time"),
        "delay": given.get("watermark", DELAY),
        "starting": STARTS.get(starting, starting) if starting else None,
        "skips_unreadable": given.get("unreadable") == "skip",
    }
    return Table(name, given.get("topic", name), kind, dict(columns), parsing=parsing, **(details | more))  # type: ignore[arg-type]


def columns_of_record(table: Table, mentioned: Collection[str]) -> list[str]:
    """Return the columns of the record that a query names; `mentioned` are its names in lower case."""
    own = {name.lower() for name in table.columns}
    wanted = {*mentioned, (table.event_time or "").lower()} - own
    return [name for name in RECORD_COLUMNS if name in wanted]


def stream_of(table: Table, mentioned: Collection[str] = ()) -> dict[str, object]:
    """Return the stream that reads the table; `mentioned` are the names in the query, in lower case."""
    time = table.event_time
    wanted = columns_of_record(table, mentioned)
    has_key = "rowkey" in {name.lower() for name in table.columns}
    kept = wanted if table.in_record_key is None or has_key else list(dict.fromkeys([*wanted, "rowkey"]))
    steps: list[object] = []
    if kept:
        steps.append({"derive": {name: RECORD_COLUMNS[name] for name in kept}})
    parse: dict[str, object] = {"format": table.format}
    if table.schema_file or table.columns:
        parse["schema"] = table.schema_file or dict(table.columns)
    parse |= {"keep": kept} if kept else {}
    required = [name for name in table.required if name != table.in_record_key]
    parse |= {"required": required} if required else {}
    steps.append({"parse": {**parse, "tombstone": "filter", **table.parsing}})
    steps += _key_steps(table, kept, wanted)
    if time and not table.key:
        steps.append({"watermark": {"time": _as_declared(time, table, wanted), "delay": table.delay}})
    source: dict[str, object] = {"topic": table.topic}
    if table.starting:
        source["starting"] = table.starting
    return {"from": source, "steps": steps}


def _key_steps(table: Table, kept: list[str], wanted: list[str]) -> list[object]:
    """Return steps that read the key. ksqlDB and Flink's upsert-kafka store a table's key in the record's key, often
    only there."""
    name = table.in_record_key
    if name is None or "rowkey" not in kept:
        return []
    kind = table.columns[name]
    found = f"coalesce(`{name}`, try_cast(rowkey AS {kind}))"
    rules = {f"the key of the record is no {kind}": f"`{name}` IS NOT NULL OR rowkey IS NULL"}
    if name in (*table.key, *table.required):
        rules[f"{name} is null"] = f"`{name}` IS NOT NULL"
    return [{"derive": {name: found}}, {"rule": rules}, *([] if "rowkey" in wanted else [{"drop": "rowkey"}])]


def _as_declared(time: str, table: Table, wanted: list[str]) -> str:
    """Return the declared spelling of a column: SQL finds names of columns in any case."""
    return next((name for name in (*table.columns, *wanted) if name.lower() == time.lower()), time)


def _known() -> list[str]:
    return [*OPTIONS, *PARSE_OPTIONS]
