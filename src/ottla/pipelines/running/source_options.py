"""The options of a source for both connectors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from ottla.base.regular_expressions import compile_java_pattern
from ottla.pipelines.model.pipeline import PipelineFields, TopicSource

Offsets = Mapping[str, Mapping[int, int]]
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]

T = TypeVar("T")

FORMATS = {"ottla": "ottla", "jvm": "kafka"}
BEGINNINGS = {"beginning": "earliest", "earliest": "earliest", "latest": "latest", "end": "latest"}
TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


def source_format(connector: str) -> str:
    return FORMATS[connector]


def source_options(
    head: PipelineFields, source: TopicSource, starting: str | None, kept: Offsets | None, ranges: Ranges | None
) -> dict[str, str]:
    """`starting` and `kept` override the source's own fields; `ranges` override everything."""
    options = {
        "kafka.bootstrap.servers": source.bootstrap_servers or head.bootstrap_servers,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "includeHeaders": "true",
        # Aborted transactions must not be read, including those of a pipeline whose output this one reads.
        "kafka.isolation.level": "read_committed",
    }
    options |= {f"kafka.{key}": value for key, value in head.client.items()}
    if ranges is not None:
        return options | source.options | _range_options(ranges)
    options |= {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topic)}
    options |= starting_options(source.starting if starting is None else starting)
    if kept:
        options = {key: value for key, value in options.items() if not key.startswith("starting")}
        options["startingOffsets"] = offsets_json(kept)
    if source.max_per_batch:
        options["maxOffsetsPerTrigger"] = str(source.max_per_batch)
    return options | source.options


def starting_options(starting: str | Mapping[str, object]) -> dict[str, str]:
    """Raises ValueError that names the allowed values."""
    if isinstance(starting, Mapping):
        return {"startingOffsets": json.dumps(starting)}
    word = BEGINNINGS.get(starting)
    if word:
        return {"startingOffsets": word}
    if TIME.fullmatch(starting):
        moment = datetime.fromisoformat(starting)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return {
            "startingTimestamp": str(int(moment.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if starting.lstrip().startswith("{"):
        return {"startingOffsets": starting}
    raise ValueError(f"{starting!r} is not earliest, latest, a time such as 2026-01-31T12:00:00Z, or offsets as JSON")


def offsets_json(offsets: Offsets) -> str:
    return json.dumps({topic: {str(number): at for number, at in each.items()} for topic, each in offsets.items()})


def part_of(source: TopicSource, whole: Mapping[str, T]) -> dict[str, T]:
    """The entries for the topics of this source."""
    return {topic: each for topic, each in whole.items() if reads(source, topic)}


def reads(source: TopicSource, topic: str) -> bool:
    return _compiled(source.pattern).fullmatch(topic) is not None if source.pattern else topic in source.topic


@lru_cache(16)
def _compiled(pattern: str) -> Any:
    return compile_java_pattern(pattern)


def _range_options(ranges: Ranges) -> dict[str, str]:
    first = {topic: {number: ends[0] for number, ends in each.items()} for topic, each in ranges.items()}
    after = {topic: {number: ends[1] for number, ends in each.items()} for topic, each in ranges.items()}
    return {
        "assign": json.dumps({topic: sorted(each) for topic, each in ranges.items()}),
        "startingOffsets": offsets_json(first),
        "endingOffsets": offsets_json(after),
    }
