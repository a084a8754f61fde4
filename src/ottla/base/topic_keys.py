"""The settings of topics: their keys, the broker keys that they fall back to, and what they come to.

    topic_settings(broker, {"retention.ms": "60000"}).retention_ms == 60000

A topic's own text wins; else the broker's value of the matching key counts, with all of its own layers.
Bad names and values raise KafkaError with Kafka's code and sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from ottla.base.broker_keys.words import NO_COMPACTION, NO_FOLLOWERS, NO_RECOMPRESSION, NO_TIERS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.setting_types import LONG_MAX, BadValueError, gzip_level, one_of, throttled_replicas
from ottla.base.settings import Boolean, Double, Int, Items, Long, OptionalInt, Settings, Text
from ottla.base.topic_settings import TopicSettings

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000

# Topic key -> (broker key, factor) in the order in which they count.
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

    cleanup_policy = Items(("delete",), check=one_of("compact", "delete"), note="?")
    compression_gzip_level = Int(-1, check=gzip_level, unused=NO_RECOMPRESSION, note="?")
    compression_lz4_level = Int(9, at_least=1, at_most=17, unused=NO_RECOMPRESSION, note="?")
    compression_type = Text(
        "producer", check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), note="?"
    )
    compression_zstd_level = Int(3, at_least=-131_072, at_most=22, unused=NO_RECOMPRESSION, note="?")
    delete_retention_ms = Long(86_400_000, at_least=0, unused=NO_COMPACTION, note="?")
    file_delete_delay_ms = Long(60_000, at_least=0, note="?")
    flush_messages = Long(LONG_MAX, at_least=1, note="?")
    flush_ms = Long(LONG_MAX, at_least=0, note="?")
    follower_replication_throttled_replicas = Items(check=throttled_replicas, unused=NO_FOLLOWERS, note="?")
    index_interval_bytes = Int(4096, at_least=0, note="?")
    internal_segment_bytes = OptionalInt(is_internal=True, note="?")
    leader_replication_throttled_replicas = Items(check=throttled_replicas, unused=NO_FOLLOWERS, note="?")
    local_retention_bytes = Long(-2, at_least=-2, unused=NO_TIERS, note="?")
    local_retention_ms = Long(-2, at_least=-2, unused=NO_TIERS, note="?")
    max_compaction_lag_ms = Long(LONG_MAX, at_least=1, unused=NO_COMPACTION, note="?")
    max_message_bytes = Int(1_048_588, at_least=0, note="?")
    message_timestamp_after_max_ms = Long(3_600_000, at_least=0, note="?")
    message_timestamp_before_max_ms = Long(LONG_MAX, at_least=0, note="?")
    message_timestamp_type = Text("CreateTime", check=one_of("CreateTime", "LogAppendTime"), note="?")
    min_cleanable_dirty_ratio = Double(0.5, at_least=0, at_most=1, unused=NO_COMPACTION, note="?")
    min_compaction_lag_ms = Long(0, at_least=0, unused=NO_COMPACTION, note="?")
    min_insync_replicas = Int(1, at_least=1, note="?")
    preallocate = Boolean(False, note="?")
    remote_log_copy_disable = Boolean(False, unused=NO_TIERS, note="?")
    remote_log_delete_on_disable = Boolean(False, unused=NO_TIERS, note="?")
    remote_storage_enable = Boolean(False, unused=NO_TIERS, note="?")
    retention_bytes = Long(-1, note="?")
    retention_ms = Long(604_800_000, at_least=-1, note="?")
    segment_bytes = Int(1_073_741_824, at_least=1_048_576, note="?")
    segment_index_bytes = Int(10_485_760, at_least=4, note="?")
    segment_jitter_ms = Long(0, at_least=0, note="?")
    segment_ms = Long(604_800_000, at_least=1, note="?")
    unclean_leader_election_enable = Boolean(False, unused=NO_FOLLOWERS, note="?")


def topic_settings(broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """What a topic's settings come to on this broker. Stored texts that are not usable (any more) do not count."""
    if not overrides:
        return _default_topic_settings(broker)
    return _settings_of(_Effective(broker, overrides))


def validate_topic_override(name: str, value: str | None) -> None:
    """Raises KafkaError(INVALID_CONFIG) with Kafka's sentence if a topic cannot have this."""
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
    """All overrides of a topic, each alone and then together. Raises KafkaError(INVALID_CONFIG)."""
    for name in sorted(overrides, key=TopicKeys.keys.__contains__):  # unknown names are told first
        validate_topic_override(name, overrides[name])
    topic = TopicKeys(overrides)
    result = topic_settings(broker, overrides)
    if result.min_compaction_lag_ms > result.max_compaction_lag_ms:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({result.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({result.max_compaction_lag_ms})",
        )
    if topic.remote_storage_enable:
        raise KafkaError(
            Error.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )


class _Effective:
    """Reads topic keys: the topic's own usable text, else the broker's value."""

    def __init__(self, broker: BrokerSettings, overrides: Mapping[str, str]) -> None:
        self.broker = broker
        self.overrides = overrides

    def get(self, name: str) -> Any:
        text = self.overrides.get(name)
        if text is not None:
            try:
                return TopicKeys.keys[name].value(text)
            except BadValueError:
                pass
        broker_name = BROKER_SYNONYMS[name][0][0]
        return getattr(self.broker, BrokerSettings.keys[broker_name].attribute)


@lru_cache(maxsize=4)
def _default_topic_settings(broker: BrokerSettings) -> TopicSettings:
    return _settings_of(_Effective(broker, {}))


def _settings_of(source: _Effective) -> TopicSettings:
    get = source.get
    small_segments = TopicKeys(source.overrides).internal_segment_bytes
    return TopicSettings(
        cleanup_policy=frozenset(get("cleanup.policy")),
        compression_type=get("compression.type"),
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
        retention_bytes=get("retention.bytes"),
        retention_ms=get("retention.ms"),
        segment_bytes=get("segment.bytes") if small_segments is None else small_segments,
        segment_index_bytes=get("segment.index.bytes"),
        segment_jitter_ms=get("segment.jitter.ms"),
        segment_ms=get("segment.ms"),
        unclean_leader_election_enable=get("unclean.leader.election.enable"),
    )
