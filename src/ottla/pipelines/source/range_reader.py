"""Reads one range of a partition in a Spark task and returns Arrow record batches.

The compiled record parser returns the bounds of keys and values in the fetched bytes. Seen as one Arrow array, the
bytes alternate between value and gap, so a single Arrow `take` of every second entry builds a column without an object
per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from librt.strings import BytesWriter

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.client.client import Client, open_client
from ottla.operations.fetched_batches import BatchSpan, FetchedDataError, record_chunks
from ottla.operations.range_fetcher import FetchError, OffsetRange, RangeFetcher
from ottla.pipelines.source.cluster import CLIENT_ID, CONNECT_RETRY_MS, open_cluster
from ottla.pipelines.source.data_loss import SourceError, report_loss
from ottla.pipelines.source.options import Offsets, Options, arrow_schema
from ottla.protocol.record_columns import RecordColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray


CREATE_TIME, LOG_APPEND_TIME = 0, 1

CLIENTS_MAX = 4
PARTITIONS_MAX = 50  # partitions to sample


class ColumnBuilder:
    """Builds Arrow batches of one partition with the requested columns."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self.topic = pa.scalar(topic, pa.string())
        self.partition = partition
        self.columns = columns
        self.schema = arrow_schema(columns)

    def build(self, data: bytes, spans: Sequence[BatchSpan], first: int, stop: int) -> pa.RecordBatch:
        """The records of these spans with offsets in first … stop - 1."""
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
        self, name: str, found: RecordColumns, data: bytes, spans: Sequence[BatchSpan], rows_by_span: list[int]
    ) -> pa.Array:
        rows = found.rows
        match name:
            case "key":
                return take_values(data, found.key_bounds, found.key_nulls)
            case "value":
                return take_values(data, found.value_bounds, found.value_nulls)
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
        return header_column(data, found, self.schema.field("headers").type)

    def __repr__(self) -> str:
        return f"<ColumnBuilder {self.topic}-{self.partition} {','.join(self.columns)}>"


def take_values(data: bytes, bounds: BytesWriter, nulls: BytesWriter) -> pa.Array:
    """The binary column of the values between these bounds of `data`."""
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
    return pa.Array.from_buffers(
        pa.binary(), rows, [validity_bitmap(rows, null_rows), offsets, contents], len(null_rows)
    )


def validity_bitmap(rows: int, null_rows: NDArray[np.int64]) -> pa.Buffer:
    """Arrow's validity bitmap with a 0 for each of these rows."""
    bits = np.ones(rows, np.uint8)
    bits[null_rows] = 0
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def header_column(data: bytes, found: RecordColumns, list_type: pa.DataType) -> pa.Array:
    """The headers of each record; null for a record without headers, as in Spark's kafka source."""
    ends = np.frombuffer(found.header_counts.getvalue(), np.int64).astype(np.int32)
    names = decode_utf8(take_values(data, found.header_key_bounds, _no_nulls()))
    values = take_values(data, found.header_value_bounds, found.header_value_nulls)
    structs = pa.StructArray.from_arrays([names, values], fields=list(list_type.value_type))
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    without = np.flatnonzero(np.diff(offsets) == 0)
    bitmap = validity_bitmap(len(ends), without) if len(without) else None
    buffers = [bitmap, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(list_type, len(ends), buffers, len(without), children=[structs])


def decode_utf8(names: pa.Array) -> pa.Array:
    """Bytes as text; invalid UTF-8 becomes replacement characters, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _no_nulls() -> BytesWriter:
    return BytesWriter()


# Spark reuses a worker process for later tasks: connections are kept between them.
_clients: dict[tuple[tuple[str, str], ...], Client] = {}  # keyed by client properties


def read_range(wanted: OffsetRange, options: Options, topic_id: str | None = None) -> Iterator[pa.RecordBatch]:
    """All records of the range in offset order; only of the topic with this id, if given."""
    builder = ColumnBuilder(wanted.topic, wanted.partition, options.columns)
    name = f"{wanted.topic}-{wanted.partition}"
    key = tuple(sorted(options.properties.items()))
    client = _clients.pop(key, None) or open_client(
        options.bootstrap, options.properties, CLIENT_ID, connect_retry_ms=CONNECT_RETRY_MS
    )
    is_finished = False
    try:
        for records, aborted, first in RangeFetcher(client, wanted, options, partial(report_loss, options), topic_id):
            for piece in record_chunks(records, name, first, wanted.end, aborted):
                try:
                    batch = builder.build(piece.data, piece.spans, first, wanted.end)
                except KafkaError as problem:
                    raise FetchedDataError(f"{name}, after offset {first}: {problem}") from None
                if batch.num_rows:
                    yield batch
        is_finished = True
    except FetchError as problem:
        raise SourceError(str(problem)) from None
    finally:
        # a reader that stops early leaves a fetch in flight: its connection cannot be reused
        if is_finished and len(_clients) < CLIENTS_MAX:
            _clients[key] = client
        else:
            client.close()


def sample_values(options: Options, count: int) -> list[bytes | None]:
    """About `count` values, or all values of a smaller topic. Samples come from the start and the end of each
    partition, because they may differ. Raises SourceError, ClientError."""
    cluster = open_cluster(options)
    try:
        partitions = cluster.partitions(options.subscription)[:PARTITIONS_MAX]
        if not partitions:
            raise SourceError("there is no such topic")
        ranges = list(sample_ranges(cluster.beginning_offsets(partitions), cluster.end_offsets(partitions), count))
    finally:
        cluster.close()
    return [
        value
        for wanted in ranges
        for batch in read_range(wanted, options)
        for value in batch.column("value").to_pylist()
    ]


def sample_ranges(first: Offsets, after: Mapping[TopicPartition, int], count: int) -> Iterator[OffsetRange]:
    """From each partition with records, half from its start and half from its end."""
    filled = [place for place in sorted(first) if after[place] > first[place]]
    for place in filled:
        share = max(1, count // len(filled))
        start, end = first[place], after[place]
        if end - start <= share:
            yield OffsetRange(place.topic, place.partition, start, end)
            continue
        early = (share + 1) // 2
        yield OffsetRange(place.topic, place.partition, start, start + early)
        if share > early:
            yield OffsetRange(place.topic, place.partition, end - (share - early), end)
