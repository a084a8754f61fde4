"""The settings of topics: their keys, the broker keys that they fall back to, and the effective values.

    topic_settings(broker, {"retention.ms": "60000"}).retention_ms == 60000

A topic's own text wins; else the broker's value of the matching key is used, with all of its own layers. Bad names and
values raise KafkaError with Kafka's code and message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import inf
from typing import Any, Final

from ottla.base.broker_keys.unused import NO_TIERS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.setting_types import LONG_MAX, BadValueError, gzip_level, one_of, throttled_replicas
from ottla.base.settings import Boolean, Double, Int, Items, Long, OptionalInt, Settings, Text
from ottla.base.topic_settings import Rates, TopicQuota, TopicSettings, known_policies

HOUR_MS: Final = 3_600_000
RATES: Final = ("produce.bytes", "produce.messages", "fetch.bytes", "fetch.messages")
MINUTE_MS: Final = 60_000

# Topic key -> (broker key, factor), in order of precedence.
BROKER_SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "ottla.quota.action": (("ottla.quota.action", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


class TopicKeys(Settings):
    """Every key that a topic may have."""

    cleanup_policy = Items(
        ("delete",),
        check=known_policies,
        note="What happens to old segments: delete, compact (each key's newest record stays), both, or none.",
    )
    compression_gzip_level = Int(
        -1,
        check=gzip_level,
        note="Effort of gzip, 1 to 9, when the broker compresses; -1 is the library's own choice.",
    )
    compression_lz4_level = Int(9, at_least=1, at_most=17, note="Effort of lz4, 1 to 17, when the broker compresses.")
    compression_type = Text(
        "producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        note="Codec of stored batches: a codec's name, uncompressed, or producer to keep what the producer chose.",
    )
    compression_zstd_level = Int(3, at_least=-131_072, at_most=22, note="Effort of zstd when the broker compresses.")
    delete_retention_ms = Long(
        86_400_000,
        at_least=0,
        note="How long a tombstone stays after compaction, so that readers can see the deletion.",
    )
    file_delete_delay_ms = Long(
        60_000, at_least=0, note="Time between taking a file out of use and removing it from disk."
    )
    flush_messages = Long(
        LONG_MAX, at_least=1, note="Messages after which a partition is forced to disk; 1 is after each one."
    )
    flush_ms = Long(LONG_MAX, at_least=0, note="Time a message may stay in memory before it is forced to disk.")
    follower_replication_throttled_replicas = Items(
        check=throttled_replicas,
        note="Replicas as partition:broker whose copying in is slowed down; * is all.",
    )
    index_interval_bytes = Int(4096, at_least=0, note="Bytes of log between two entries of the offset index.")
    internal_segment_bytes = OptionalInt(
        is_internal=True,
        note="Size at which a new segment is begun, without the lower limit of segment.bytes; meant for tests.",
    )
    leader_replication_throttled_replicas = Items(
        check=throttled_replicas,
        note="Replicas as partition:broker whose copying out is slowed down; * is all.",
    )
    local_retention_bytes = Long(
        -2,
        at_least=-2,
        unused=NO_TIERS,
        note="Bytes that stay local once they are in remote storage; -2 is as retention.bytes.",
    )
    local_retention_ms = Long(
        -2,
        at_least=-2,
        unused=NO_TIERS,
        note="Time that records stay local once they are in remote storage; -2 is as retention.ms.",
    )
    max_compaction_lag_ms = Long(LONG_MAX, at_least=1, note="Longest time a record may wait for compaction.")
    max_message_bytes = Int(1_048_588, at_least=0, note="Largest batch that producers may send, compressed.")
    message_timestamp_after_max_ms = Long(3_600_000, at_least=0, note="How far a message's time may lie in the future.")
    message_timestamp_before_max_ms = Long(LONG_MAX, at_least=0, note="How far a message's time may lie in the past.")
    message_timestamp_type = Text(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        note="Whose time a message bears: CreateTime the producer's, LogAppendTime the broker's.",
    )
    min_cleanable_dirty_ratio = Double(
        0.5,
        at_least=0,
        at_most=1,
        note="Share of not yet compacted bytes that starts a compaction.",
    )
    min_compaction_lag_ms = Long(0, at_least=0, note="Time for which a record is surely not compacted away.")
    min_insync_replicas = Int(
        1,
        at_least=1,
        note="Replicas that must have a record before acks=all is answered; with fewer, such writes are refused.",
    )
    ottla_quota_action = Text(
        "throttle",
        check=one_of("throttle", "reject"),
        is_internal=True,
        note="What becomes of a producer that is faster than the topic's quota: `throttle` holds it up, `reject` "
        "refuses its records (POLICY_VIOLATION) and stores nothing.",
    )
    ottla_quota_fetch_bytes = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Most bytes of the topic that consumers get in a second, on each broker.",
    )
    ottla_quota_fetch_messages = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Most records of the topic that consumers get in a second, on each broker.",
    )
    ottla_quota_partition_fetch_bytes = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Most bytes of each partition that consumers get in a second."
    )
    ottla_quota_partition_fetch_messages = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Most records of each partition that consumers get in a second."
    )
    ottla_quota_partition_produce_bytes = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Most bytes that each partition takes in a second."
    )
    ottla_quota_partition_produce_messages = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Most records that each partition takes in a second."
    )
    ottla_quota_produce_bytes = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Most bytes that the topic takes in a second, on each broker."
    )
    ottla_quota_produce_messages = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Most records that the topic takes in a second, on each broker."
    )
    preallocate = Boolean(False, note="Whether the disk sets the whole room for a segment aside when it is begun.")
    remote_log_copy_disable = Boolean(False, unused=NO_TIERS, note="Whether nothing more is copied to remote storage.")
    remote_log_delete_on_disable = Boolean(
        False, unused=NO_TIERS, note="Whether switching remote storage off deletes what is there."
    )
    remote_storage_enable = Boolean(False, unused=NO_TIERS, note="Whether old segments go to remote storage.")
    retention_bytes = Long(-1, note="Bytes that a partition keeps at least; older segments go; -1 is without limit.")
    retention_ms = Long(604_800_000, at_least=-1, note="Time for which records are kept; -1 is for ever.")
    segment_bytes = Int(1_073_741_824, at_least=1_048_576, note="Size at which a new segment is begun.")
    segment_index_bytes = Int(10_485_760, at_least=4, note="Largest index of a segment.")
    segment_jitter_ms = Long(
        0, at_least=0, note="Most time by which segments roll earlier, at random, so that not all roll at once."
    )
    segment_ms = Long(604_800_000, at_least=1, note="Time after which a new segment is begun, full or not.")
    unclean_leader_election_enable = Boolean(
        False,
        note="Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
    )


def topic_settings(broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """The effective settings of a topic on this broker. Stored texts that are not valid (any more) are ignored."""
    if not overrides:
        return _default_topic_settings(broker)
    return _settings_of(broker, overrides)


def topic_value(broker: BrokerSettings, overrides: Mapping[str, str], name: str) -> Any:
    """One topic key: the topic's own text if it is valid, else the broker's value, else the default."""
    key = TopicKeys.keys[name]
    text = overrides.get(name)
    if text is not None:
        try:
            return key.value(text)
        except BadValueError:
            pass
    synonyms = BROKER_SYNONYMS.get(name)
    return getattr(broker, BrokerSettings.keys[synonyms[0][0]].attribute) if synonyms else key.default


def validate_topic_override(name: str, value: str | None) -> None:
    """Raises KafkaError(INVALID_CONFIG) with Kafka's message if a topic cannot have this value."""
    key = TopicKeys.keys.get(name)
    if key is None:
        raise KafkaError(Error.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if value is None:
        raise KafkaError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
    try:
        key.value(value)
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None


def validate_topic_overrides(broker: BrokerSettings, overrides: Mapping[str, str]) -> None:
    """Check all overrides of a topic, each alone and then together. Raises KafkaError(INVALID_CONFIG)."""
    for name in sorted(overrides, key=TopicKeys.keys.__contains__):  # unknown names are reported first
        validate_topic_override(name, overrides[name])
    result = topic_settings(broker, overrides)
    if result.min_compaction_lag_ms > result.max_compaction_lag_ms:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({result.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({result.max_compaction_lag_ms})",
        )
    if TopicKeys(overrides).remote_storage_enable:
        raise KafkaError(
            Error.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


@lru_cache(maxsize=4)
def _default_topic_settings(broker: BrokerSettings) -> TopicSettings:
    return _settings_of(broker, {})


def _quota(get: Callable[[str], Any]) -> TopicQuota | None:
    """None without limits: then the broker does not measure."""
    topic, partition = (_rates(get, place) for place in ("ottla.quota", "ottla.quota.partition"))
    if topic == partition == Rates():
        return None
    return TopicQuota(topic, partition, get("ottla.quota.action") == "reject")


def _rates(get: Callable[[str], Any], place: str) -> Rates:
    return Rates(*(inf if (value := get(f"{place}.{rate}")) == LONG_MAX else float(value) for rate in RATES))


def _settings_of(broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
    get = partial(topic_value, broker, overrides)
    small_segments = get("internal.segment.bytes")
    return TopicSettings(
        cleanup_policy=frozenset(get("cleanup.policy")),
        compression_gzip_level=get("compression.gzip.level"),
        compression_lz4_level=get("compression.lz4.level"),
        compression_type=get("compression.type"),
        compression_zstd_level=get("compression.zstd.level"),
        delete_retention_ms=get("delete.retention.ms"),
        file_delete_delay_ms=get("file.delete.delay.ms"),
        flush_messages=get("flush.messages"),
        flush_ms=get("flush.ms"),
        index_interval_bytes=get("index.interval.bytes"),
        max_compaction_lag_ms=get("max.compaction.lag.ms"),
        max_message_bytes=get("max.message.bytes"),
        message_timestamp_after_max_ms=get("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms=get("message.timestamp.before.max.ms"),
        message_timestamp_type=get("message.timestamp.type"),
        min_cleanable_dirty_ratio=get("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=get("min.compaction.lag.ms"),
        min_insync_replicas=get("min.insync.replicas"),
        preallocate=get("preallocate"),
        quota=_quota(get),
        retention_bytes=get("retention.bytes"),
        retention_ms=get("retention.ms"),
        segment_bytes=get("segment.bytes") if small_segments is None else small_segments,
        segment_index_bytes=get("segment.index.bytes"),
        segment_jitter_ms=get("segment.jitter.ms"),
        segment_ms=get("segment.ms"),
        unclean_leader_election_enable=get("unclean.leader.election.enable"),
    )
