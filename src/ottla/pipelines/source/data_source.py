"""The Python data source format("ottla") of Spark: batch and stream readers over a Kafka cluster, and its writers.

Spark creates these objects on the driver, asks them for offsets and partitions there, and sends them to the tasks,
which call read(). Connections are therefore opened late and never pickled. Names in camelCase are Spark's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.errors import ClientError
from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.cluster import commit_progress, open_cluster
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.source.decoding import Decoding, ddl, registry_decoding
from ottla.pipelines.source.options import (
    OptionError,
    Options,
    offsets_from_document,
    offsets_json,
    read_options,
    spark_schema,
)
from ottla.pipelines.source.planner import Planner

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "ottla"

logger = logging.getLogger(__name__)


class OttlaDataSource(DataSource):
    """Topics of a Kafka cluster as a table or a stream."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = read_options(self.options)
        decoding = registry_decoding(options)
        return spark_schema(options.columns) if decoding is None else decoding.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, is_stream=False)
        return BatchReader(options, _decoding_for_schema(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = read_options(self.options, is_stream=True)
        return StreamReader(options, _decoding_for_schema(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.pipelines.sinks import format_writer  # noqa: PLC0415 (readers do not need it)

        options = format_writer.read_write_options(self.options)
        format_writer.check_schema(schema)
        if overwrite:
            raise OptionError("records of a topic cannot be overwritten: use mode append")
        return format_writer.AtLeastOnceWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from ottla.pipelines.sinks import format_writer  # noqa: PLC0415

        options = format_writer.read_write_options(self.options)
        format_writer.check_schema(schema)
        if overwrite:
            raise OptionError("records of a topic cannot be overwritten: use the output mode append or update")
        return format_writer.stream_writer(options)


class RangePartition(InputPartition):
    """A range of one task, with the topic id: a recreated topic of the same name must not be read instead."""

    def __init__(self, wanted: OffsetRange, topic_ids: Mapping[str, str]) -> None:
        super().__init__((*wanted, topic_ids.get(wanted.topic)))


class BatchReader(DataSourceReader):
    """Reads the records between two bounds."""

    def __init__(self, options: Options, decoding: Decoding | None = None) -> None:
        self.options = options
        self.decoding = decoding

    def partitions(self) -> Sequence[InputPartition]:
        cluster = open_cluster(self.options)
        try:
            wanted = Planner(self.options, cluster).batch_ranges()
            return [RangePartition(each, cluster.topic_ids()) for each in wanted]
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read_partition(partition, self.options, self.decoding)

    def __repr__(self) -> str:
        return f"<BatchReader {self.options.subscription}>"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream batch by batch, within the limits of Spark and the options."""

    def __init__(self, options: Options, decoding: Decoding | None = None) -> None:
        self.options = options
        self.decoding = decoding
        self._planner: Planner | None = None
        self._committed_offsets: dict[str, Any] | None = None

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.options, open_cluster(self.options))
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return offsets_json(self.planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most, least = self.options.offsets_per_trigger_max, self.options.offsets_per_trigger_min
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._commit_group_offsets(start)  # Spark calls this after the previous batch; commit() comes one batch later
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self.options.offsets_per_trigger_min
        return offsets_json(self.planner.next_end(offsets_from_document(start), most, least))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_json(self.planner.latest_offsets) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.fix_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        wanted = self.planner.ranges(offsets_from_document(start), offsets_from_document(end))
        return [RangePartition(each, self.planner.topic_ids.seen) for each in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read_partition(partition, self.options, self.decoding)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_group_offsets(end)

    def _commit_group_offsets(self, done: dict[str, Any]) -> None:
        """Commit the offsets of Spark's checkpoint to the consumer group. A failed commit does not stop the query."""
        group = self.options.commit_group
        if group is None or done == self._committed_offsets:
            return
        try:
            commit_progress(self.options.bootstrap, group, done, self.options.properties)
            self._committed_offsets = done
        except (ClientError, SourceError) as problem:
            logger.warning("the progress of group %s cannot be committed: %s", group, problem)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.cluster.close()

    def __repr__(self) -> str:
        return f"<StreamReader {self.options.subscription}>"


def _decoding_for_schema(options: Options, schema: StructType) -> Decoding | None:
    """The decoding for the schema that Spark read before. Raises OptionError if the subject has changed."""
    decoding = registry_decoding(options)
    if decoding is not None and ddl(schema["value"].dataType) != ddl(decoding.fields):
        raise OptionError(f"the newest schema of {options.value_subject} has changed: start the query again")
    return decoding


def _read_partition(
    partition: InputPartition, options: Options, decoding: Decoding | None = None
) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark passes None if there is nothing to read
        return iter(())
    from ottla.pipelines.source.range_reader import read_range  # # noqa: PLC0415 (only tasks need Arrow)

    *wanted, topic_id = partition.value
    if decoding is None:
        return read_range(OffsetRange(*wanted), options, topic_id)
    return decoding.decode_batches(read_range(OffsetRange(*wanted), decoding.source_options(options), topic_id))
