"""Change records as Debezium writes them in JSON: `before`, `after`, `op` and `ts_ms`, bare or below `payload`.

A row comes out for each change: the columns of `after`, or for a deletion those of `before`, with `op` (c created, r
read by a snapshot, u updated, d deleted) and `ts_ms`. Behind a deletion Debezium writes a record without value, so
that compaction removes the key; in a compacted topic only that one may be left. It is read as a deletion, too, and
what its key says is all that is known of the row.

What changes no single row (t truncates a table) dies, and so does a value that Debezium leaves out of an update: taken
for the value it would destroy the one that is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.parsing.json_format import JsonReader, inside
from ottla.pipelines.steps.parsing.reader import Fault, quoted, shown
from ottla.pipelines.steps.parsing.schemas import SchemaError
from ottla.pipelines.steps.parsing.times import Times

OP, CHANGED, BEFORE, AFTER, PAYLOAD = "op", "ts_ms", "before", "after", "payload"
DELETED = "d"
OF_ROWS = ("c", "r", "u", DELETED)
LEFT_OUT = "__debezium_unavailable_value"  # for a large value that an update did not change


@dataclass(frozen=True)
class DebeziumReader(JsonReader):
    """`schema`: the columns of the table, OP and CHANGED."""

    @property
    def written(self) -> T.StructType:
        row = T.StructType([entry for entry in self.schema.fields if entry.name not in (OP, CHANGED)])
        change = T.StructType(
            [T.StructField(BEFORE, row), T.StructField(AFTER, row), self.schema[OP], self.schema[CHANGED]]
        )
        return T.StructType([*change.fields, T.StructField(PAYLOAD, change)])

    def raw(self, name: str) -> Column:
        if name in (OP, CHANGED):
            return _part(name)
        return F.when(_is_deletion(), _part(BEFORE).getField(name)).otherwise(_part(AFTER).getField(name))

    def faults(self) -> list[Fault]:
        op = _part(OP)
        side = F.when(_is_deletion(), F.lit(BEFORE)).otherwise(F.lit(AFTER))
        has_row = F.when(_is_deletion(), _part(BEFORE).isNotNull()).otherwise(_part(AFTER).isNotNull())
        return [
            *super().faults(),
            (op.isNull(), F.lit("no `op`: not a change record of Debezium")),
            (~op.isin(*OF_ROWS), F.concat(F.lit("op "), shown(op), F.lit(" changes no single row"))),
            (~has_row, F.concat(F.lit("op "), shown(op), F.lit(" without "), side)),
            *self._left_out(),
        ]

    def _left_out(self) -> list[Fault]:
        texts = [each.name for each in self.schema.fields if isinstance(each.dataType, T.StringType)]
        cure = "Debezium left the value out: set REPLICA IDENTITY FULL, or leave the field out of the schema"
        missing = [(F.col(quoted(name)) == LEFT_OUT, F.lit(f"field `{name}`: {cure}")) for name in texts]
        return [(~_is_deletion() & is_missing, text) for is_missing, text in missing]


def debezium_reader(table: T.StructType, times: Times) -> DebeziumReader:
    """Raises SchemaError."""
    taken = [name for name in table.names if name.lower() in (OP, CHANGED)]
    if taken:
        raise SchemaError(
            f"field {taken[0]!r}: {OP} and {CHANGED} are what the change record says;"
            " read before and after by format json"
        )
    own = [T.StructField(OP, T.StringType()), T.StructField(CHANGED, T.LongType())]
    return DebeziumReader(T.StructType([*table.fields, *own]), times)


def deletion_text(key: Column) -> Column:
    """The change record that a record without value and with this key stands for."""
    text = key.cast("string")
    known = F.coalesce(F.get_json_object(text, f"$.{PAYLOAD}"), text)
    return F.concat(F.lit(f'{{"{BEFORE}":'), known, F.lit(f',"{OP}":"{DELETED}"}}'))


def _part(name: str) -> Column:
    return F.coalesce(inside(PAYLOAD, name), inside(name))


def _is_deletion() -> Column:
    return F.coalesce(_part(OP) == DELETED, F.lit(False))
