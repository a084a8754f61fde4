"""The settings of topics: their keys, the broker keys that they fall back to, and the effective values.

    topic_settings(broker, {"retention.ms": "60000"}).retention_ms == 60000

A topic's own text overrides the broker's value of the matching key, which has its own layers. Invalid names and values
raise KafkaError with Kafka's code and message.
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
        note="What happens to old segments: delete, compact (keep the newest record of each key), both, or none.",
    )
    compression_gzip_level = Int(
        -1,
        check=gzip_level,
        note="Compression level of gzip, 1 to 9, if the broker compresses; -1 is the library's default.",
    )
    compression_lz4_level = Int(
        9, at_least=1, at_most=17, note="Compression level of lz4, 1 to 17, if the broker compresses."
    )
    compression_type = Text(
        "producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        note="Codec of stored batches: the name of a codec, uncompressed, or producer to keep the producer's codec.",
    )
    compression_zstd_level = Int(
        3, at_least=-131_072, at_most=22, note="Compression level of zstd, if the broker compresses."
    )
    delete_retention_ms = Long(
        86_400_000,
        at_least=0,
        note="Time for which a tombstone stays after compaction, so that consumers can see the deletion.",
    )
    file_delete_delay_ms = Long(
        60_000, at_least=0, note="Time between marking a file as deleted and removing it from disk."
    )
    flush_messages = Long(
        LONG_MAX, at_least=1, note="Number of messages after which a partition is flushed to disk; 1 is after each one."
    )
    flush_ms = Long(LONG_MAX, at_least=0, note="Time after which a message is flushed to disk.")
    follower_replication_throttled_replicas = Items(
        check=throttled_replicas,
        note="Replicas as partition:broker whose replication is throttled on the follower; * is all.",
    )
    index_interval_bytes = Int(4096, at_least=0, note="Bytes of log between two entries of the offset index.")
    internal_segment_bytes = OptionalInt(
        is_internal=True,
        note="Size at which a new segment is created, without the lower limit of segment.bytes; for tests.",
    )
    leader_replication_throttled_replicas = Items(
        check=throttled_replicas,
        note="Replicas as partition:broker whose replication is throttled on the leader; * is all.",
    )
    local_retention_bytes = Long(
        -2,
        at_least=-2,
        unused=NO_TIERS,
        note="Bytes that stay local after they are in remote storage; -2 is the value of retention.bytes.",
    )
    local_retention_ms = Long(
        -2,
        at_least=-2,
        unused=NO_TIERS,
        note="Time for which records stay local after they are in remote storage; -2 is the value of retention.ms.",
    )
    max_compaction_lag_ms = Long(LONG_MAX, at_least=1, note="Maximum time a record may wait for compaction.")
    max_message_bytes = Int(
        1_048_588, at_least=0, note="Maximum size of a batch that producers may send, after compression."
    )
    message_timestamp_after_max_ms = Long(
        3_600_000,
        at_least=0,
        note="Maximum difference by which a record timestamp may be later than the broker's clock.",
    )
    message_timestamp_before_max_ms = Long(
        LONG_MAX,
        at_least=0,
        note="Maximum difference by which a record timestamp may be earlier than the broker's clock.",
    )
    message_timestamp_type = Text(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        note="Timestamp of a record: CreateTime is the producer's, LogAppendTime the broker's.",
    )
    min_cleanable_dirty_ratio = Double(
        0.5,
        at_least=0,
        at_most=1,
        note="Minimum ratio of uncompacted bytes at which a log is compacted.",
    )
    min_compaction_lag_ms = Long(0, at_least=0, note="Minimum time for which a record is not compacted.")
    min_insync_replicas = Int(
        1,
        at_least=1,
        note="Replicas that must have a record before a produce request with acks=all is acknowledged; with fewer "
        "replicas in sync, such requests are rejected.",
    )
    ottla_quota_action = Text(
        "throttle",
        check=one_of("throttle", "reject"),
        is_internal=True,
        note="What happens to a producer above the topic's quota: `throttle` delays it, `reject` rejects its records "
        "(POLICY_VIOLATION).",
    )
    ottla_quota_fetch_bytes = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Maximum number of bytes per second that consumers get from the topic, on each broker.",
    )
    ottla_quota_fetch_messages = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Maximum number of records per second that consumers get from the topic, on each broker.",
    )
    ottla_quota_partition_fetch_bytes = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Maximum number of bytes per second that consumers get from each partition.",
    )
    ottla_quota_partition_fetch_messages = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Maximum number of records per second that consumers get from each partition.",
    )
    ottla_quota_partition_produce_bytes = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Maximum number of bytes per second that each partition accepts."
    )
    ottla_quota_partition_produce_messages = Long(
        LONG_MAX, at_least=1, is_internal=True, note="Maximum number of records per second that each partition accepts."
    )
    ottla_quota_produce_bytes = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Maximum number of bytes per second that the topic accepts, on each broker.",
    )
    ottla_quota_produce_messages = Long(
        LONG_MAX,
        at_least=1,
        is_internal=True,
        note="Maximum number of records per second that the topic accepts, on each broker.",
    )
    preallocate = Boolean(False, note="Whether disk space for the whole segment is reserved when it is created.")
    remote_log_copy_disable = Boolean(False, unused=NO_TIERS, note="Whether copying to remote storage is disabled.")
    remote_log_delete_on_disable = Boolean(
        False, unused=NO_TIERS, note="Whether disabling remote storage deletes its segments."
    )
    remote_storage_enable = Boolean(False, unused=NO_TIERS, note="Whether old segments are copied to remote storage.")
    retention_bytes = Long(-1, note="Size of a partition above which its oldest segments are deleted; -1 is unlimited.")
    retention_ms = Long(604_800_000, at_least=-1, note="Time for which records are kept; -1 is forever.")
    segment_bytes = Int(1_073_741_824, at_least=1_048_576, note="Size at which a new segment is created.")
    segment_index_bytes = Int(10_485_760, at_least=4, note="Maximum size of a segment's offset index.")
    segment_jitter_ms = Long(
        0, at_least=0, note="Maximum random time by which segments roll earlier, so that they do not all roll at once."
    )
    segment_ms = Long(
        604_800_000, at_least=1, note="Time after which a new segment is created, even if the current one is not full."
    )
    unclean_leader_election_enable = Boolean(
        False,
        note="Whether a replica that is not in sync may become leader if no other is available; this may lose records.",
    )


def topic_settings(broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """Return the effective settings of a topic on this broker. Invalid stored texts are ignored."""
    if not overrides:
        return _default_topic_settings(broker)
    return _settings_of(broker, overrides)


def topic_value(broker: BrokerSettings, overrides: Mapping[str, str], name: str) -> Any:
    """Return the value of a topic key:

    the first that is valid of the topic's own text, the broker's value, the default.
    """
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
    """Check that a topic can have this value. Raises KafkaError(INVALID_CONFIG) with Kafka's message."""
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
    """Return the topic's quota; None without limits: then the broker does not measure."""
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
