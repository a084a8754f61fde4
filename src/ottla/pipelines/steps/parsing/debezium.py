"""Change records of Debezium in JSON: `before`, `after`, `op` and `ts_ms`, at the top or below `payload`.

Each change becomes a row: the columns of `after`, or of `before` for a deletion, with `op` (c created, r snapshot read,
u updated, d deleted) and `ts_ms`. After a deletion Debezium writes a record without value, so that compaction removes
the key; a compacted topic may contain only that one. It is read as a deletion too, with the columns of its key.

Changes without a single row (t truncates a table) die, and so do updates in which Debezium omits a value: its
placeholder would overwrite the stored value.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.parsing.json_format import JsonReader, parsed_field
from ottla.pipelines.steps.parsing.reader import RejectRule, quoted, shown
from ottla.pipelines.steps.parsing.schemas import SchemaError
from ottla.pipelines.steps.parsing.time_formats import TimeFormats

OP, TS_MS, BEFORE, AFTER, PAYLOAD = "op", "ts_ms", "before", "after", "payload"
DELETED = "d"
ROW_OPERATIONS = ("c", "r", "u", DELETED)
UNAVAILABLE_VALUE = "__debezium_unavailable_value"  # placeholder for a large value that an update did not change


@dataclass(frozen=True)
class DebeziumReader(JsonReader):
    """`schema`: the columns of the table, OP and CHANGED."""

    @property
    def written(self) -> T.StructType:
        row = T.StructType([entry for entry in self.schema.fields if entry.name not in (OP, TS_MS)])
        change = T.StructType(
            [T.StructField(BEFORE, row), T.StructField(AFTER, row), self.schema[OP], self.schema[TS_MS]]
        )
        return T.StructType([*change.fields, T.StructField(PAYLOAD, change)])

    def raw(self, name: str) -> Column:
        if name in (OP, TS_MS):
            return _change_field(name)
        return F.when(_is_deletion(), _change_field(BEFORE).getField(name)).otherwise(
            _change_field(AFTER).getField(name)
        )

    def reject_rules(self) -> list[RejectRule]:
        op = _change_field(OP)
        side = F.when(_is_deletion(), F.lit(BEFORE)).otherwise(F.lit(AFTER))
        has_row = F.when(_is_deletion(), _change_field(BEFORE).isNotNull()).otherwise(_change_field(AFTER).isNotNull())
        return [
            *super().reject_rules(),
            (op.isNull(), F.lit("no `op`: not a change record of Debezium")),
            (~op.isin(*ROW_OPERATIONS), F.concat(F.lit("op "), shown(op), F.lit(" changes no single row"))),
            (~has_row, F.concat(F.lit("op "), shown(op), F.lit(" without "), side)),
            *self._left_out(),
        ]

    def _left_out(self) -> list[RejectRule]:
        texts = [each.name for each in self.schema.fields if isinstance(each.dataType, T.StringType)]
        cure = "Debezium left the value out: set REPLICA IDENTITY FULL, or leave the field out of the schema"
        missing = [(F.col(quoted(name)) == UNAVAILABLE_VALUE, F.lit(f"field `{name}`: {cure}")) for name in texts]
        return [(~_is_deletion() & is_missing, text) for is_missing, text in missing]


def debezium_reader(table: T.StructType, times: TimeFormats) -> DebeziumReader:
    """Raises SchemaError."""
    taken = [name for name in table.names if name.lower() in (OP, TS_MS)]
    if taken:
        raise SchemaError(
            f"field {taken[0]!r}: {OP} and {TS_MS} are what the change record says;"
            " read before and after by format json"
        )
    own = [T.StructField(OP, T.StringType()), T.StructField(TS_MS, T.LongType())]
    return DebeziumReader(T.StructType([*table.fields, *own]), times)


def deletion_text(key: Column) -> Column:
    """The change record for a record with this key and no value."""
    text = key.cast("string")
    known = F.coalesce(F.get_json_object(text, f"$.{PAYLOAD}"), text)
    return F.concat(F.lit(f'{{"{BEFORE}":'), known, F.lit(f',"{OP}":"{DELETED}"}}'))


def _change_field(name: str) -> Column:
    return F.coalesce(parsed_field(PAYLOAD, name), parsed_field(name))


def _is_deletion() -> Column:
    return F.coalesce(_change_field(OP) == DELETED, F.lit(False))
