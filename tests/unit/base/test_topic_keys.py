"""Settings of topics."""

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.settings import Mode
from ottla.base.topic_keys import (
    BROKER_SYNONYMS,
    TopicKeys,
    topic_settings,
    topic_value,
    validate_topic_override,
    validate_topic_overrides,
)
from ottla.base.topic_settings import Rates, TopicQuota, TopicSettings

BROKER = BrokerSettings()
OTHER_WORDS = {
    "compression.type": "zstd",
    "message.timestamp.type": "LogAppendTime",
    "ottla.quota.action": "reject",
}


def refusal(overrides: dict[str, str], broker: BrokerSettings = BROKER) -> str | None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_overrides(broker, overrides)
    assert caught.value.error is Error.INVALID_CONFIG
    return caught.value.message


def test_the_defaults_of_broker_and_topic_are_the_same() -> None:
    assert topic_settings(BROKER, {}) == TopicSettings()
    for name, ((broker_key, factor), *_) in BROKER_SYNONYMS.items():
        broker_value = getattr(BROKER, BrokerSettings.keys[broker_key].attribute)
        assert (TopicKeys.keys[name].default, factor) == (broker_value, 1), name


def test_every_field_can_be_set_by_its_key() -> None:
    texts = {
        "cleanup.policy": "compact,delete",
        "compression.gzip.level": "1",
        "compression.lz4.level": "2",
        "compression.type": "zstd",
        "compression.zstd.level": "5",
        "delete.retention.ms": "1",
        "file.delete.delay.ms": "2",
        "flush.messages": "3",
        "flush.ms": "4",
        "index.interval.bytes": "5",
        "max.compaction.lag.ms": "60",
        "max.message.bytes": "7",
        "message.timestamp.after.max.ms": "8",
        "message.timestamp.before.max.ms": "9",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "10",
        "min.insync.replicas": "11",
        "preallocate": "true",
        "retention.bytes": "12",
        "retention.ms": "13",
        "segment.bytes": "1048577",
        "segment.index.bytes": "14",
        "segment.jitter.ms": "15",
        "segment.ms": "16",
        "unclean.leader.election.enable": "true",
    }
    found = topic_settings(BROKER, texts)
    default = TopicSettings()
    assert {name.replace(".", "_") for name in texts} == set(TopicSettings.__dataclass_fields__) - {"quota"}
    for name in texts:
        attribute = name.replace(".", "_")
        assert getattr(found, attribute) != getattr(default, attribute), name
    assert found.cleanup_policy == {"compact", "delete"}
    assert (found.segment_bytes, found.min_cleanable_dirty_ratio) == (1_048_577, 0.25)


def test_a_topic_s_quota_is_what_its_keys_say() -> None:
    texts = {
        "ottla.quota.produce.bytes": "1",
        "ottla.quota.produce.messages": "2",
        "ottla.quota.fetch.bytes": "3",
        "ottla.quota.fetch.messages": "4",
        "ottla.quota.partition.produce.bytes": "5",
        "ottla.quota.partition.produce.messages": "6",
        "ottla.quota.partition.fetch.bytes": "7",
        "ottla.quota.partition.fetch.messages": "8",
        "ottla.quota.action": "reject",
    }
    assert topic_settings(BROKER, texts).quota == TopicQuota(Rates(1, 2, 3, 4), Rates(5, 6, 7, 8), is_rejecting=True)
    one = topic_settings(BROKER, {"ottla.quota.fetch.bytes": "3"}).quota
    assert one == TopicQuota(Rates(fetch_bytes=3), Rates(), is_rejecting=False)
    rejecting = BrokerSettings({"ottla.quota.action": "reject"})
    assert topic_settings(rejecting, {}).quota is None
    assert topic_settings(rejecting, {"ottla.quota.fetch.bytes": "3"}).quota == TopicQuota(one.topic, Rates(), True)
    for value in ("0", "-1", "1.5", "many"):
        assert "ottla.quota.produce.bytes" in (refusal({"ottla.quota.produce.bytes": value}) or "")


def test_the_brokers_value_counts_under_all_of_its_own_layers() -> None:
    broker = BrokerSettings({"log.retention.hours": "2"})
    assert topic_settings(broker, {}).retention_ms == 7_200_000
    assert topic_settings(broker.with_dynamic({"log.retention.ms": "5"}, {}), {}).retention_ms == 5
    assert topic_settings(broker, {"retention.ms": "9", "segment.ms": "8"}).retention_ms == 9


@pytest.mark.parametrize("name", BROKER_SYNONYMS)
def test_every_broker_key_behind_a_topic_key_counts(name: str) -> None:
    """In the file, for all brokers and for one; the finest of several (ms, minutes, hours) wins."""
    other = {"list": "compact", "string": OTHER_WORDS.get(name, ""), "boolean": "true", "double": "0.25"}
    text = other.get(TopicKeys.keys[name].kind.name.lower(), "7000000" if name == "segment.bytes" else "7")
    plain = topic_value(BROKER, {}, name)
    for broker_key, factor in BROKER_SYNONYMS[name]:
        from_file = BrokerSettings({broker_key: text})
        value = topic_value(from_file, {}, name)
        assert value != plain or text == "true", broker_key
        if factor > 1:
            assert value == 7 * factor
        if BrokerSettings.keys[broker_key].mode is not Mode.READ_ONLY:
            assert topic_value(BROKER.with_dynamic({broker_key: text}, {}), {}, name) == value
            assert topic_value(BROKER.with_dynamic({}, {broker_key: text}), {}, name) == value


def test_segments_below_the_limit_are_for_tests() -> None:
    assert topic_settings(BROKER, {"internal.segment.bytes": "500"}).segment_bytes == 500
    validate_topic_overrides(BROKER, {"internal.segment.bytes": "500"})
    assert "Value must be at least 1048576" in str(refusal({"segment.bytes": "500"}))


def test_a_stored_text_that_is_not_usable_does_not_count() -> None:
    assert topic_settings(BROKER, {"retention.ms": "soon", "no.such.key": "1"}).retention_ms == 604_800_000


def test_no_settings_cost_nothing_the_second_time() -> None:
    assert topic_settings(BROKER, {}) is topic_settings(BROKER, {})


def test_an_empty_policy_neither_deletes_nor_compacts() -> None:
    assert topic_settings(BROKER, {"cleanup.policy": ""}).cleanup_policy == frozenset()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("no.such.key", "1", "Unknown topic config name: no.such.key"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ],
)
def test_one_setting_that_a_topic_cannot_have(name: str, value: str | None, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_override(name, value)
    assert (caught.value.error, caught.value.message) == (Error.INVALID_CONFIG, message)


def test_unknown_names_are_reported_before_bad_values() -> None:
    assert refusal({"retention.ms": "abc", "no.such.key": "1"}) == "Unknown topic config name: no.such.key"


def test_compaction_lags_must_not_cross_even_through_the_broker() -> None:
    assert refusal({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}) == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )
    broker = BrokerSettings({"log.cleaner.max.compaction.lag.ms": "5"})
    assert "(10) > max.compaction.lag.ms (5)" in str(refusal({"min.compaction.lag.ms": "10"}, broker))


def test_remote_storage_cannot_be_switched_on() -> None:
    assert refusal({"remote.storage.enable": "true"}) == (
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    )
    validate_topic_overrides(BROKER, {"remote.storage.enable": "false", "local.retention.ms": "5"})


def test_keys_that_a_broker_does_not_have_fall_back_to_their_default() -> None:
    assert topic_value(BROKER, {}, "leader.replication.throttled.replicas") == ()
    assert topic_value(BROKER, {}, "internal.segment.bytes") is None
