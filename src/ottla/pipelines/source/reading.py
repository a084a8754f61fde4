"""Reads one range in a Spark task: Arrow batches out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError
from ottla.client.client import Client
from ottla.client.opening import open_client
from ottla.operations.batches import FetchedDataError, pieces
from ottla.operations.fetching import FetchError, Range, RangeFetcher
from ottla.pipelines.source.cluster import CLIENT_ID, PATIENCE_MS
from ottla.pipelines.source.columns import ColumnBuilder
from ottla.pipelines.source.losses import SourceError, report_loss
from ottla.pipelines.source.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

CLIENTS_MAX = 4

# Spark uses a worker process for one task after the other: the connections of the last ones are kept.
_clients: dict[tuple[tuple[str, str], ...], Client] = {}  # by the properties of their source


def read_range(wanted: Range, options: Options, topic_id: str | None = None) -> Iterator[pa.RecordBatch]:
    """All records of the range that exist, in the order of their offsets; only of the topic with this id, if given."""
    builder = ColumnBuilder(wanted.topic, wanted.partition, options.columns)
    name = f"{wanted.topic}-{wanted.partition}"
    key = tuple(sorted(options.properties.items()))
    client = _clients.pop(key, None) or open_client(
        options.bootstrap, options.properties, CLIENT_ID, patience_ms=PATIENCE_MS
    )
    is_finished = False
    try:
        for records, aborted, first in RangeFetcher(client, wanted, options, partial(report_loss, options), topic_id):
            for piece in pieces(records, name, first, wanted.end, aborted):
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
        # a reader that stops early leaves a fetch under way: its connection is of no use any more
        if is_finished and len(_clients) < CLIENTS_MAX:
            _clients[key] = client
        else:
            client.close()
