"""Fetched bytes to Arrow: record batches of Kafka in, record batches of Arrow out.

The compiled walk says where keys and values lie. Seen as one Arrow array, the fetched bytes are value, gap, value,
gap…; taking every second entry is then one call of Arrow's own, and no object is made for a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from librt.strings import BytesWriter

from ottla.operations.batches import Span
from ottla.pipelines.source.schema import arrow_schema
from ottla.protocol.record_columns import RecordColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray

CREATE_TIME, LOG_APPEND_TIME = 0, 1


class ColumnBuilder:
    """Makes Arrow batches of one partition with the wanted columns."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self.topic = pa.scalar(topic, pa.string())
        self.partition = partition
        self.columns = columns
        self.schema = arrow_schema(columns)

    def build(self, data: bytes, spans: Sequence[Span], first: int, stop: int) -> pa.RecordBatch:
        """The records of these spans of `data` whose offsets lie in first … stop - 1."""
        wanted = self.columns
        found = RecordColumns("key" in wanted, "value" in wanted, "timestamp" in wanted, "headers" in wanted)
        rows_by_span = []
        before = 0
        for start, end, count, base_offset, timestamp, is_one_time in spans:
            found.add(data, start, end, count, base_offset, timestamp, is_one_time, first, stop)
            rows_by_span.append(found.rows - before)
            before = found.rows
        arrays = [self._array(name, found, data, spans, rows_by_span) for name in wanted]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(
        self, name: str, found: RecordColumns, data: bytes, spans: Sequence[Span], rows_by_span: list[int]
    ) -> pa.Array:
        rows = found.rows
        match name:
            case "key":
                return gather(data, found.key_bounds, found.key_nulls)
            case "value":
                return gather(data, found.value_bounds, found.value_nulls)
            case "topic":
                return pa.repeat(self.topic, rows)
            case "partition":
                return pa.array(np.full(rows, self.partition, np.int32))
            case "offset":
                return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(found.offsets.getvalue())])
            case "timestamp":
                values = pa.py_buffer(found.timestamps.getvalue())
                return pa.Array.from_buffers(self.schema.field(name).type, rows, [None, values])
            case "timestampType":
                kinds = [LOG_APPEND_TIME if span.is_log_append_time else CREATE_TIME for span in spans]
                return pa.array(np.repeat(np.array(kinds, np.int32), rows_by_span))
        return header_lists(data, found, self.schema.field("headers").type)

    def __repr__(self) -> str:
        return f"<ColumnBuilder {self.topic}-{self.partition} {','.join(self.columns)}>"


def gather(data: bytes, bounds: BytesWriter, nulls: BytesWriter) -> pa.Array:
    """The binary column whose values lie between these bounds of `data`."""
    places = np.frombuffer(bounds.getvalue(), np.int64).astype(np.int32)
    rows = len(places) // 2
    null_rows = np.frombuffer(nulls.getvalue(), np.int64)
    if len(null_rows) == rows:
        return pa.nulls(rows, pa.binary())
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(places), pa.py_buffer(data)])
    values = with_gaps.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    if not len(null_rows):
        return values
    _, offsets, contents = values.buffers()
    return pa.Array.from_buffers(pa.binary(), rows, [validity(rows, null_rows), offsets, contents], len(null_rows))


def validity(rows: int, null_rows: NDArray[np.int64]) -> pa.Buffer:
    """Arrow's bitmap with a 0 for each of these rows."""
    bits = np.ones(rows, np.uint8)
    bits[null_rows] = 0
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def header_lists(data: bytes, found: RecordColumns, list_type: pa.DataType) -> pa.Array:
    """The headers of each record; a record without headers has null, as with Spark's kafka source."""
    ends = np.frombuffer(found.header_counts.getvalue(), np.int64).astype(np.int32)
    names = as_text(gather(data, found.header_key_bounds, _nothing()))
    values = gather(data, found.header_value_bounds, found.header_value_nulls)
    structs = pa.StructArray.from_arrays([names, values], fields=list(list_type.value_type))
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    without = np.flatnonzero(np.diff(offsets) == 0)
    bitmap = validity(len(ends), without) if len(without) else None
    buffers = [bitmap, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(list_type, len(ends), buffers, len(without), children=[structs])


def as_text(names: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 becomes replacement characters, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _nothing() -> BytesWriter:
    return BytesWriter()
