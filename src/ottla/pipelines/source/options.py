"""The options of the source, checked: those of Spark's kafka source, and a few of our own.

Spark hands the names of options to Python in lower case, so they are looked up like that here and told in the form
that people write. An unknown option is an error: a misspelt one would silently read something else.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ottla.base.names import TopicPartition
from ottla.operations.schema_registry.addresses import RegistryAddress, address_of
from ottla.operations.schema_registry.errors import SchemaError
from ottla.pipelines.source.bounds import (
    EARLIEST,
    LATEST,
    TIMES_EXAMPLE,
    Bound,
    OptionError,
    parse_assignment,
    parse_offsets,
)
from ottla.pipelines.source.schema import COLUMNS, USUAL_COLUMNS

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
STARTS = ("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp")
ENDS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitGroup")
KNOWN = (
    *SUBSCRIPTIONS,
    *STARTS,
    *ENDS,
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
REGISTRY = "registry."  # before properties of the registry's client, such as basic.auth.user.info
BOOTSTRAP = "bootstrap.servers"
REFUSED_KAFKA = {  # as Spark's kafka source refuses them
    "auto.offset.reset": "where to start is said with the option startingOffsets",
    "key.deserializer": "keys come as bytes: turn them into something else with DataFrame functions",
    "value.deserializer": "values come as bytes: turn them into something else with DataFrame functions",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint; commitGroup shows them to lag tools",
    "interceptor.classes": "interceptors could change the records",
}
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
STRATEGIES = ("error", "latest")
MODES = ("failfast", "permissive")  # what becomes of values that no schema of the registry can read

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

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subscription:
    """Which partitions are read: those of some topics, of topics whose name matches, or certain ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern}"
        return ", ".join(self.topics or map(str, self.partitions))


@dataclass(frozen=True)
class Options:
    """All that the readers need to know. The properties have no kafka. in front."""

    properties: Mapping[str, str]
    subscription: Subscription
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    is_latest_without_match: bool
    fails_on_data_loss: bool
    is_committed_only: bool
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
    loss_folder: str | None = None  # for what is told of losses, see losses.py
    registry: RegistryAddress | None = None
    value_subject: str | None = None
    is_permissive: bool = False

    @property
    def bootstrap(self) -> str:
        return self.properties[BOOTSTRAP]


def read_options(given: Mapping[str, str], is_stream: bool | None = None) -> Options:
    """Check the options; what only a batch or only a stream may have is judged once `is_stream` is known."""
    texts = {name.lower(): str(value).strip() for name, value in given.items()}
    refuse_unknown(texts, KNOWN, "source")
    properties = client_properties(texts, REFUSED_KAFKA)
    if is_stream is not None:
        _check_mode(texts, is_stream)
    return Options(
        properties=properties,
        subscription=_subscription(texts),
        columns=_columns(texts),
        starting=_bound(texts, STARTS, LATEST if is_stream else EARLIEST),
        ending=_bound(texts, ENDS, LATEST),
        is_latest_without_match=one_of(texts, "startingOffsetsByTimestampStrategy", STRATEGIES) == "latest",
        fails_on_data_loss=_flag(texts, "failOnDataLoss", True),
        is_committed_only=_isolation(properties),
        offsets_per_trigger_max=_number(texts, "maxOffsetsPerTrigger", 1),
        offsets_per_trigger_min=_number(texts, "minOffsetsPerTrigger", 1),
        trigger_delay_ms_max=_duration_ms(texts, "maxTriggerDelay", TRIGGER_DELAY_MS),
        partitions_min=_number(texts, "minPartitions", 1),
        records_per_partition_max=_number(texts, "maxRecordsPerPartition", 1),
        retries=_number_or(texts, "fetchOffset.numRetries", 0, RETRIES),
        retry_interval_ms=_number_or(texts, "fetchOffset.retryIntervalMs", 0, RETRY_INTERVAL_MS),
        poll_timeout_ms=_number_or(texts, "kafkaConsumer.pollTimeoutMs", 1, POLL_TIMEOUT_MS),
        fetch_bytes=_fetch_bytes(properties),
        commit_group=texts.get("commitgroup") or None,
        loss_folder=texts.get("lossfolder") or None,
        registry=_registry(texts),
        value_subject=texts.get("valuesubject") or None,
        is_permissive=one_of(texts, "mode", MODES) == "permissive",
    )


def refuse_unknown(texts: Mapping[str, str], names: Sequence[str], what: str) -> None:
    """`what` has these options, and those of the client. Raises OptionError that names the closest one."""
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
    """Settings of the client, without kafka. in front. Raises OptionError."""
    properties = {name[len(KAFKA) :]: value for name, value in texts.items() if name.startswith(KAFKA)}
    if not properties.get(BOOTSTRAP):
        raise OptionError(f"the option {KAFKA}{BOOTSTRAP} is missing: write host:port, for example 127.0.0.1:9092")
    for name, reason in refused.items():
        if name in properties:
            raise OptionError(f"the option {KAFKA}{name} cannot be used with Spark: {reason}")
    return properties


def _check_mode(texts: Mapping[str, str], is_stream: bool) -> None:
    for name in ENDS:
        if is_stream and name.lower() in texts:
            raise OptionError(f"a stream has no end: the option {name} is for batch queries")
    for name in STREAM_ONLY:
        if not is_stream and name.lower() in texts:
            logger.warning("the option %s has no effect on a batch query", name)
    if is_stream:
        return
    starts, ends = _bound(texts, STARTS, EARLIEST), _bound(texts, ENDS, LATEST)
    if starts.everywhere == LATEST or LATEST in starts.offsets.values():
        raise OptionError("a batch query cannot start at latest: there would be nothing to read")
    if ends.everywhere == EARLIEST or EARLIEST in ends.offsets.values():
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
        re.compile(text)
    except re.error as problem:
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
    usual = COLUMNS if _flag(texts, "includeHeaders", False) else USUAL_COLUMNS
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


def _bound(texts: Mapping[str, str], names: tuple[str, str, str], default: int) -> Bound:
    """As in Spark: one time for all partitions comes before times of single ones, and those before offsets."""
    offsets, times, time = names
    if time.lower() in texts:
        return Bound(time_ms=_number(texts, time, 0))
    if times.lower() in texts:
        found = parse_offsets(texts[times.lower()], times, TIMES_EXAMPLE)
        if any(moment < 0 for moment in found.values()):
            raise OptionError(f"{times} holds a negative time")
        return Bound(times_ms=found)
    text = texts.get(offsets.lower())
    if text is None:
        return Bound(everywhere=default)
    if text.lower() in ("earliest", "latest"):
        return Bound(everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise OptionError(f"{offsets} is earliest, latest or offsets as JSON, not {text[:200]!r}")
    found = parse_offsets(text, offsets)
    if any(offset < EARLIEST for offset in found.values()):
        raise OptionError(f"{offsets} holds an offset below -2 (-1 is latest, -2 is earliest)")
    return Bound(offsets=found)


def _isolation(properties: Mapping[str, str]) -> bool:
    level = properties.get("isolation.level", ISOLATION_LEVELS[0]).lower()
    if level not in ISOLATION_LEVELS:
        raise OptionError(f"kafka.isolation.level is {' or '.join(ISOLATION_LEVELS)}, not {level!r}")
    return level == "read_committed"


def _fetch_bytes(properties: Mapping[str, str]) -> int:
    return _number_or(properties, "max.partition.fetch.bytes", 1, FETCH_BYTES)


def _flag(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def one_of(texts: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    text = texts.get(name.lower(), known[0]).lower()
    if text not in known:
        raise OptionError(f"{name} is {' or '.join(known)}, not {text!r}")
    return text


def _number_or(texts: Mapping[str, str], name: str, least: int, default: int) -> int:
    found = _number(texts, name, least)
    return default if found is None else found


def _number(texts: Mapping[str, str], name: str, least: int) -> int | None:
    text = texts.get(name.lower())
    return None if text is None else _parsed(text, name, least, int)


def _parsed(text: str, name: str, least: int, parse: Callable[[str], int]) -> int:
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
