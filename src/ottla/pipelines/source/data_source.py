"""The Python data source format("ottla") of Spark: batch and stream readers over a Kafka cluster, and its writers.

Spark makes these objects on the driver, asks them for offsets and partitions there, and sends them to the tasks, which
call read(). So nothing is opened before it is needed, and nothing open travels. Names in camelCase are Spark's.
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
from ottla.operations.fetching import Range
from ottla.pipelines.source.bounds import OptionError, offsets_json, offsets_of
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.decoding import Decoding, ddl, decoding_of
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.source.options import Options, read_options
from ottla.pipelines.source.planner import Planner
from ottla.pipelines.source.progress import commit_progress
from ottla.pipelines.source.schema import spark_schema

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
        decoding = decoding_of(options)
        return spark_schema(options.columns) if decoding is None else decoding.spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, is_stream=False)
        return BatchReader(options, _same_decoding(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = read_options(self.options, is_stream=True)
        return StreamReader(options, _same_decoding(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.pipelines.sinks import format_options, format_writer  # noqa: PLC0415 (who reads does not need them)

        options = format_options.read_write_options(self.options)
        format_writer.check_schema(schema)
        if overwrite:
            raise OptionError("records of a topic cannot be overwritten: use mode append")
        return format_writer.AtLeastOnceWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from ottla.pipelines.sinks import format_options, format_writer  # noqa: PLC0415

        options = format_options.read_write_options(self.options)
        format_writer.check_schema(schema)
        if overwrite:
            raise OptionError("records of a topic cannot be overwritten: use the output mode append or update")
        return format_writer.stream_writer(options)


class RangePartition(InputPartition):
    """What one task reads, and of which topic: one of the same name may be made before it comes to that."""

    def __init__(self, wanted: Range, topic_ids: Mapping[str, str]) -> None:
        super().__init__((*wanted, topic_ids.get(wanted.topic)))


class BatchReader(DataSourceReader):
    """Reads what is there between two bounds."""

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
        return _read(partition, self.options, self.decoding)

    def __repr__(self) -> str:
        return f"<BatchReader {self.options.subscription}>"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream batch by batch, with the limits that Spark or the options set."""

    def __init__(self, options: Options, decoding: Decoding | None = None) -> None:
        self.options = options
        self.decoding = decoding
        self._planner: Planner | None = None
        self._shown: dict[str, Any] | None = None

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
        self._show(start)  # Spark asks when the batch before is done; commit() would come one batch later
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self.options.offsets_per_trigger_min
        return offsets_json(self.planner.next_end(offsets_of(start), most, least))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_json(self.planner.newest) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.fix_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        wanted = self.planner.ranges(offsets_of(start), offsets_of(end))
        return [RangePartition(each, self.planner.topic_ids.seen) for each in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options, self.decoding)

    def commit(self, end: dict[str, Any]) -> None:
        self._show(end)

    def _show(self, done: dict[str, Any]) -> None:
        """Commit what Spark has in its checkpoint; trouble with telling others is no reason to stop the query."""
        group = self.options.commit_group
        if group is None or done == self._shown:
            return
        try:
            commit_progress(self.options.bootstrap, group, done, self.options.properties)
            self._shown = done
        except (ClientError, SourceError) as problem:
            logger.warning("the progress of group %s cannot be committed: %s", group, problem)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.cluster.close()

    def __repr__(self) -> str:
        return f"<StreamReader {self.options.subscription}>"


def _same_decoding(options: Options, schema: StructType) -> Decoding | None:
    """By the schema that Spark was told a moment ago. Raises OptionError if the subject has another one by now."""
    decoding = decoding_of(options)
    if decoding is not None and ddl(schema["value"].dataType) != ddl(decoding.fields):
        raise OptionError(f"the newest schema of {options.value_subject} has changed: start the query again")
    return decoding


def _read(partition: InputPartition, options: Options, decoding: Decoding | None = None) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark's way to say that there is nothing to read at all
        return iter(())
    from ottla.pipelines.source.reading import read_range  # noqa: PLC0415 (Arrow is needed in tasks only)

    *wanted, topic_id = partition.value
    if decoding is None:
        return read_range(Range(*wanted), options, topic_id)
    return decoding.decoded(read_range(Range(*wanted), decoding.reading(options), topic_id))
