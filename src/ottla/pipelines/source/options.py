"""The options of the source, validated: those of Spark's kafka source, and a few of our own.

Spark passes option names to Python in lower case, so lookups use lower case and messages use the documented spelling.
An unknown option is an error: a misspelled one would silently read something else.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.names import TopicPartition
from ottla.base.regular_expressions import PatternError, compile_java_pattern
from ottla.operations.schema_registry.client_config import RegistryAddress, address_of
from ottla.operations.schema_registry.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa


COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
DEFAULT_COLUMNS = COLUMNS[:-1]  # headers only with includeHeaders
SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

LATEST, EARLIEST = -1, -2  # special offsets in the options, special timestamps in ListOffsets
OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'
Offsets = dict[TopicPartition, int]
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
STARTING_OPTIONS = ("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp")
ENDING_OPTIONS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")
KNOWN_OPTIONS = (
    *SUBSCRIPTIONS,
    *STARTING_OPTIONS,
    *ENDING_OPTIONS,
    *STREAM_ONLY,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "minPartitions",
    "maxRecordsPerPartition",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
    "lossFolder",
    "registry",
    "valueSubject",
    "mode",
)
KAFKA = "kafka."
REGISTRY = "registry."  # prefix of registry client properties, such as basic.auth.user.info
BOOTSTRAP = "bootstrap.servers"
REJECTED_KAFKA_OPTIONS = {  # Spark's kafka source rejects the same settings
    "auto.offset.reset": "use the option startingOffsets",
    "key.deserializer": "keys are bytes: convert them with DataFrame functions",
    "value.deserializer": "values are bytes: convert them with DataFrame functions",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint; commitGroup shows them to lag tools",
    "interceptor.classes": "interceptors could change the records",
}
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
STRATEGIES = ("error", "latest")
MODES = ("failfast", "permissive")  # handling of values that do not match their schema
RETRIES = 3
RETRY_INTERVAL_MS = 10
POLL_TIMEOUT_MS = 120_000
TRIGGER_DELAY_MS = 15 * 60_000
FETCH_BYTES = 8 << 20
INTEGER_MAX = 2**63 - 1
DURATION = re.compile(r"(\d+)\s*([a-z]*)")
DURATION_UNITS_MS = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


def spark_schema(columns: Sequence[str]) -> str:
    """The schema as Spark DDL."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema that Spark expects from Python workers."""
    import pyarrow as pa  # # noqa: PLC0415 (Spark's workers have Arrow; reading options does not need it)

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(header),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


class OptionError(ValueError):
    """An invalid option of the source; str() is one sentence with the cause and the fix."""


@dataclass(frozen=True)
class Bound:
    """One end of the range to read. Exactly one field is set."""

    all_partitions: int | None = None  # EARLIEST or LATEST, for all partitions
    offsets: Offsets = field(default_factory=dict)  # per partition; may be EARLIEST or LATEST
    times_ms: Offsets = field(default_factory=dict)  # per partition
    time_ms: int | None = None  # for all partitions


def offsets_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the JSON form of Spark's kafka source, always in the same order.

    Spark compares offsets as text: another order would look like new data.
    """
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def offsets_from_document(document: object, name: str = "the offsets", example: str = OFFSETS_EXAMPLE) -> Offsets:
    """Read offsets from a parsed document. Raises OptionError for another form."""
    found: Offsets = {}
    try:
        if not isinstance(document, dict):
            raise TypeError
        for topic, partitions in document.items():
            for partition, offset in partitions.items():
                if isinstance(offset, bool) or not isinstance(offset, int):
                    raise TypeError
                found[TopicPartition(str(topic), int(partition))] = offset
    except (TypeError, ValueError, AttributeError):
        raise _format_error(name, example, document) from None
    return found


def parse_offsets(text: str, name: str, example: str = OFFSETS_EXAMPLE) -> Offsets:
    return offsets_from_document(_parse(text, name, example), name, example)


def parse_assignment(text: str, name: str) -> tuple[TopicPartition, ...]:
    """The partitions of the option `assign`."""
    document = _parse(text, name, ASSIGN_EXAMPLE)
    found: list[TopicPartition] = []
    try:
        if not isinstance(document, dict):
            raise TypeError
        for topic, partitions in document.items():
            found += [TopicPartition(topic, int(partition)) for partition in partitions]
    except (TypeError, ValueError):
        raise _format_error(name, ASSIGN_EXAMPLE, text) from None
    if not found:
        raise OptionError(f"{name} names no partitions: write for example {ASSIGN_EXAMPLE}")
    return tuple(found)


def _parse(text: str, name: str, example: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise _format_error(name, example, text) from None


def _format_error(name: str, example: str, got: object) -> OptionError:
    return OptionError(f"{name} must be of the form {example}, not {str(got)[:200]!r}")


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subscription:
    """The partitions to read: of some topics, of topics that match a pattern, or individual ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern}"
        return ", ".join(self.topics or map(str, self.partitions))


@dataclass(frozen=True)
class Options:
    """All options of the readers. Property names have no `kafka.` prefix."""

    properties: Mapping[str, str]
    subscription: Subscription
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    falls_back_to_latest: bool
    fails_on_data_loss: bool
    is_read_committed: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    records_per_partition_max: int | None
    retries: int
    retry_interval_ms: int
    poll_timeout_ms: int
    fetch_bytes: int
    commit_group: str | None
    loss_folder: str | None = None  # for data loss reports, see data_loss.py
    registry: RegistryAddress | None = None
    value_subject: str | None = None
    is_permissive: bool = False

    @property
    def bootstrap(self) -> str:
        return self.properties[BOOTSTRAP]


def read_options(given: Mapping[str, str], is_stream: bool | None = None) -> Options:
    """Validate the options. Rules for batch or stream only are checked once `is_stream` is known."""
    texts = {name.lower(): str(value).strip() for name, value in given.items()}
    reject_unknown(texts, KNOWN_OPTIONS, "source")
    properties = client_properties(texts, REJECTED_KAFKA_OPTIONS)
    if is_stream is not None:
        _check_mode(texts, is_stream)
    return Options(
        properties=properties,
        subscription=_subscription(texts),
        columns=_columns(texts),
        starting=_read_bound(texts, STARTING_OPTIONS, LATEST if is_stream else EARLIEST),
        ending=_read_bound(texts, ENDING_OPTIONS, LATEST),
        falls_back_to_latest=choice_option(texts, "startingOffsetsByTimestampStrategy", STRATEGIES) == "latest",
        fails_on_data_loss=_bool_option(texts, "failOnDataLoss", True),
        is_read_committed=_is_read_committed(properties),
        offsets_per_trigger_max=_int_option(texts, "maxOffsetsPerTrigger", 1),
        offsets_per_trigger_min=_int_option(texts, "minOffsetsPerTrigger", 1),
        trigger_delay_ms_max=_duration_ms(texts, "maxTriggerDelay", TRIGGER_DELAY_MS),
        partitions_min=_int_option(texts, "minPartitions", 1),
        records_per_partition_max=_int_option(texts, "maxRecordsPerPartition", 1),
        retries=_int_option_or(texts, "fetchOffset.numRetries", 0, RETRIES),
        retry_interval_ms=_int_option_or(texts, "fetchOffset.retryIntervalMs", 0, RETRY_INTERVAL_MS),
        poll_timeout_ms=_int_option_or(texts, "kafkaConsumer.pollTimeoutMs", 1, POLL_TIMEOUT_MS),
        fetch_bytes=_fetch_bytes(properties),
        commit_group=texts.get("commitgroup") or None,
        loss_folder=texts.get("lossfolder") or None,
        registry=_registry(texts),
        value_subject=texts.get("valuesubject") or None,
        is_permissive=choice_option(texts, "mode", MODES) == "permissive",
    )


def reject_unknown(texts: Mapping[str, str], names: Sequence[str], what: str) -> None:
    """Reject options of `what` that are neither `names` nor client settings. Raises OptionError that suggests the
    closest name."""
    known = {name.lower(): name for name in names}
    for name in texts:
        if name in known or name.startswith(KAFKA) or (name.startswith(REGISTRY) and "registry" in known):
            continue
        if name == "path" and what == "source":
            raise OptionError("load() takes no path here: name the topic with the option subscribe")
        close = difflib.get_close_matches(name, [*known, KAFKA + BOOTSTRAP], n=1, cutoff=0.5)
        cure = f"did you mean {known.get(close[0], close[0])}?" if close else f"known are {', '.join(names)}"
        raise OptionError(f"the {what} ottla has no option {name}: {cure}")


def client_properties(texts: Mapping[str, str], refused: Mapping[str, str]) -> dict[str, str]:
    """Client settings without the `kafka.` prefix. Raises OptionError."""
    properties = {name[len(KAFKA) :]: value for name, value in texts.items() if name.startswith(KAFKA)}
    if not properties.get(BOOTSTRAP):
        raise OptionError(f"the option {KAFKA}{BOOTSTRAP} is missing: write host:port, for example 127.0.0.1:9092")
    for name, reason in refused.items():
        if name in properties:
            raise OptionError(f"the option {KAFKA}{name} cannot be used with Spark: {reason}")
    return properties


def _check_mode(texts: Mapping[str, str], is_stream: bool) -> None:
    for name in ENDING_OPTIONS:
        if is_stream and name.lower() in texts:
            raise OptionError(f"a stream has no end: the option {name} is for batch queries")
    for name in STREAM_ONLY:
        if not is_stream and name.lower() in texts:
            logger.warning("the option %s has no effect on a batch query", name)
    if is_stream:
        return
    starts, ends = _read_bound(texts, STARTING_OPTIONS, EARLIEST), _read_bound(texts, ENDING_OPTIONS, LATEST)
    if starts.all_partitions == LATEST or LATEST in starts.offsets.values():
        raise OptionError("a batch query cannot start at latest: there would be nothing to read")
    if ends.all_partitions == EARLIEST or EARLIEST in ends.offsets.values():
        raise OptionError("a batch query cannot end at earliest: there would be nothing to read")


def _subscription(texts: Mapping[str, str]) -> Subscription:
    chosen = [name for name in SUBSCRIPTIONS if name.lower() in texts]
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} are there" if chosen else "none is there"
        raise OptionError(f"exactly one of the options {', '.join(SUBSCRIPTIONS)} is needed, {found}")
    text = texts[chosen[0].lower()]
    if chosen[0] == "assign":
        return Subscription(partitions=parse_assignment(text, "assign"))
    if chosen[0] == "subscribePattern":
        return Subscription(pattern=_pattern(text))
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise OptionError("the option subscribe names no topic")
    return Subscription(topics=topics)


def _pattern(text: str) -> str:
    if not text:
        raise OptionError("the option subscribePattern is empty")
    try:
        compile_java_pattern(text)
    except PatternError as problem:
        raise OptionError(f"subscribePattern {text!r} is not a regular expression: {problem}") from None
    return text


def _registry(texts: Mapping[str, str]) -> RegistryAddress | None:
    properties = {name[len(REGISTRY) :]: value for name, value in texts.items() if name.startswith(REGISTRY)}
    address = address_of(properties, texts.get("registry"))
    if (address is None) != (not texts.get("valuesubject")):
        raise OptionError("the options registry and valueSubject belong together")
    if address is None and (properties or "mode" in texts):
        raise OptionError(f"the options mode and {REGISTRY}… mean nothing without registry and valueSubject")
    try:
        if address is not None:
            address.nodes()
    except SchemaError as problem:
        raise OptionError(f"registry: {problem}") from None
    if address is not None and "value" not in _columns(texts):
        raise OptionError("valueSubject is for the column value, which the option columns leaves out")
    return address


def _columns(texts: Mapping[str, str]) -> tuple[str, ...]:
    usual = COLUMNS if _bool_option(texts, "includeHeaders", False) else DEFAULT_COLUMNS
    text = texts.get("columns")
    if text is None:
        return usual
    names = {name.lower(): name for name in COLUMNS}
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for part in chosen:
        if part.lower() not in names:
            raise OptionError(f"there is no column {part!r}: columns are {', '.join(COLUMNS)}")
    if not chosen:
        raise OptionError("the option columns names no column")
    return tuple(dict.fromkeys(names[part.lower()] for part in chosen))


def _read_bound(texts: Mapping[str, str], names: tuple[str, str, str], default: int) -> Bound:
    """Spark's precedence: one time for all partitions, then times per partition, then offsets."""
    offsets, times, time = names
    if time.lower() in texts:
        return Bound(time_ms=_int_option(texts, time, 0))
    if times.lower() in texts:
        found = parse_offsets(texts[times.lower()], times, TIMES_EXAMPLE)
        if any(moment < 0 for moment in found.values()):
            raise OptionError(f"{times} holds a negative time")
        return Bound(times_ms=found)
    text = texts.get(offsets.lower())
    if text is None:
        return Bound(all_partitions=default)
    if text.lower() in ("earliest", "latest"):
        return Bound(all_partitions=EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise OptionError(f"{offsets} is earliest, latest or offsets as JSON, not {text[:200]!r}")
    found = parse_offsets(text, offsets)
    if any(offset < EARLIEST for offset in found.values()):
        raise OptionError(f"{offsets} holds an offset below -2 (-1 is latest, -2 is earliest)")
    return Bound(offsets=found)


def _is_read_committed(properties: Mapping[str, str]) -> bool:
    level = properties.get("isolation.level", ISOLATION_LEVELS[0]).lower()
    if level not in ISOLATION_LEVELS:
        raise OptionError(f"kafka.isolation.level is {' or '.join(ISOLATION_LEVELS)}, not {level!r}")
    return level == "read_committed"


def _fetch_bytes(properties: Mapping[str, str]) -> int:
    return _int_option_or(properties, "max.partition.fetch.bytes", 1, FETCH_BYTES)


def _bool_option(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def choice_option(texts: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    text = texts.get(name.lower(), known[0]).lower()
    if text not in known:
        raise OptionError(f"{name} is {' or '.join(known)}, not {text!r}")
    return text


def _int_option_or(texts: Mapping[str, str], name: str, least: int, default: int) -> int:
    found = _int_option(texts, name, least)
    return default if found is None else found


def _int_option(texts: Mapping[str, str], name: str, least: int) -> int | None:
    text = texts.get(name.lower())
    return None if text is None else _parse_int(text, name, least, int)


def _parse_int(text: str, name: str, least: int, parse: Callable[[str], int]) -> int:
    try:
        number = parse(text)
    except ValueError:
        number = least - 1
    if not least <= number <= INTEGER_MAX:
        raise OptionError(f"{name} must be a whole number of at least {least}, not {text[:100]!r}")
    return number


def _duration_ms(texts: Mapping[str, str], name: str, default: int) -> int:
    text = texts.get(name.lower())
    if text is None:
        return default
    match = DURATION.fullmatch(text.lower())
    if match is None or match.group(2) not in DURATION_UNITS_MS:
        raise OptionError(f"{name} is a time such as 15m or 30s, not {text[:100]!r}")
    return int(match.group(1)) * DURATION_UNITS_MS[match.group(2)]
