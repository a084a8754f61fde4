"""Topics as DataFrames in one call, for notebooks and plain PySpark programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.base.bootstrap import default_bootstrap
from ottla.base.names import TopicPartition
from ottla.pipelines.source.options import OptionError, offsets_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# earliest, latest, a time (also as text, such as 2026-01-31T12:00:00+00:00), or {partition: offset}
Place = str | datetime | Mapping[int, int]


def register(spark: SparkSession) -> None:
    """Register format("ottla") with a session, including Spark Connect. May be called more than once."""
    from ottla.pipelines.source.data_source import OttlaDataSource  # # noqa: PLC0415 (PySpark is imported on first use)

    spark.dataSource.register(OttlaDataSource)


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    starting: Place = "earliest",
    ending: Place = "latest",
    columns: Sequence[str] = (),
    headers: bool = False,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The current records of a topic (or of several, separated by commas). Default brokers: $OTTLA_BOOTSTRAP_SERVER."""
    register(spark)
    wanted = _options(topic, bootstrap_servers, starting, columns, headers)
    wanted |= _bound_options(topic, ending, "ending")
    return spark.read.format("ottla").options(**wanted, **(options or {})).load()


def read_topic_stream(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    starting: Place = "latest",
    columns: Sequence[str] = (),
    headers: bool = False,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A topic (or several, separated by commas) as a stream."""
    register(spark)
    wanted = _options(topic, bootstrap_servers, starting, columns, headers)
    return spark.readStream.format("ottla").options(**wanted, **(options or {})).load()


def _options(
    topic: str, bootstrap: str | None, starting: Place, columns: Sequence[str], headers: bool
) -> dict[str, str]:
    wanted = {
        "kafka.bootstrap.servers": bootstrap or default_bootstrap(),
        "subscribe": topic,
        **_bound_options(topic, starting, "starting"),
    }
    if columns:
        wanted["columns"] = ",".join(columns)
    if headers:
        wanted["includeHeaders"] = "true"
    return wanted


def _bound_options(topic: str, place: Place, side: str) -> dict[str, str]:
    """The source options for a bound."""
    if isinstance(place, Mapping):
        offsets = {TopicPartition(topic, int(partition)): offset for partition, offset in place.items()}
        return {f"{side}Offsets": json.dumps(offsets_json(offsets))}
    if isinstance(place, str) and place.lower() in ("earliest", "latest"):
        return {f"{side}Offsets": place.lower()}
    moment = _parse_time(place, side) if isinstance(place, str) else place
    return {f"{side}Timestamp": str(int((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000))}


def _parse_time(text: str, side: str) -> datetime:
    if text.isascii() and text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{side} is earliest, latest, a time such as 2026-01-31T12:00:00+00:00, or {{partition: offset}}, "
            f"not {text[:100]!r}"
        ) from None
