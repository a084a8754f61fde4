"""AlterConfigs and IncrementalAlterConfigs."""

import uuid

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.controller.decisions.config_changes import (
    VALUE_LENGTH_MAX,
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    apply_operations,
    decide_config_changes,
)
from ottla.controller.image import MetadataImage, TopicImage
from ottla.controller.stores.store import CreateNode, SetNode

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = OperationType
SETTINGS = BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:9092"})


def change(kind: int, name: str, *operations: tuple[OperationType, str, str]) -> ConfigResourceChange:
    return ConfigResourceChange(kind, name, tuple(ConfigOperation(*operation) for operation in operations))


def image(**topic_configs: dict[str, str]) -> MetadataImage:
    topics = {name: TopicImage(name, uuid.uuid4(), ()) for name in topic_configs}
    return MetadataImage(topics=topics, topic_configs=topic_configs)


def result_of(before: MetadataImage, *changes: ConfigResourceChange) -> list[tuple[Error, str | None]]:
    return [(row.error, row.message) for row in decide_config_changes(before, changes, SETTINGS).reply]


def test_a_change_writes_the_whole_new_set_once() -> None:
    before = image(a={"retention.ms": "5", "segment.ms": "6"})
    decision = decide_config_changes(
        before, [change(TOPIC, "a", (SET, "retention.ms", "7"), (DELETE, "segment.ms", ""))], SETTINGS
    )
    assert decision.image.topic_configs["a"] == {"retention.ms": "7"}
    assert before.topic_configs["a"] == {"retention.ms": "5", "segment.ms": "6"}, "an image never changes"
    (operation,) = decision.operations
    assert isinstance(operation, SetNode)
    assert (operation.path, b'"retention.ms":"7"' in operation.data.replace(b" ", b"")) == ("/config/topics/a", True)


def test_the_first_change_of_a_broker_creates_its_node() -> None:
    decision = decide_config_changes(image(), [change(BROKER, "", (SET, "log.retention.ms", "7"))], SETTINGS)
    (operation,) = decision.operations
    assert isinstance(operation, CreateNode)
    assert operation.path == "/config/brokers/<default>"
    assert decision.image.broker_configs == {"": {"log.retention.ms": "7"}}


def test_a_change_to_what_is_there_already_writes_nothing() -> None:
    before = image(a={"retention.ms": "5"})
    decision = decide_config_changes(before, [change(TOPIC, "a", (SET, "retention.ms", "5"))], SETTINGS)
    assert (decision.operations, decision.image, decision.reply[0].error) == ((), before, Error.NONE)


def test_a_refused_resource_leaves_nothing_behind() -> None:
    before = image(a={}, b={})
    changes = [
        change(TOPIC, "a", (SET, "retention.ms", "5"), (SET, "segment.ms", "0")),
        change(TOPIC, "b", (SET, "retention.ms", "6")),
        change(BROKER, "1", (SET, "num.partitions", "6")),
    ]
    decision = decide_config_changes(before, changes, SETTINGS)
    assert [row.error for row in decision.reply] == [Error.INVALID_CONFIG, Error.NONE, Error.INVALID_REQUEST]
    assert decision.image.topic_configs == {"a": {}, "b": {"retention.ms": "6"}}
    assert decision.image.broker_configs == {}
    assert decision.image.changed_topics_since(before) == {"b"}
    assert len(decision.operations) == 1


def test_a_topic_is_judged_under_the_brokers_changes_of_that_moment() -> None:
    before = image(a={}).with_broker_config("", {"log.cleaner.max.compaction.lag.ms": "5"})
    (row,) = result_of(before, change(TOPIC, "a", (SET, "min.compaction.lag.ms", "10")))
    assert row == (
        Error.INVALID_CONFIG,
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    )


def test_a_brokers_change_is_judged_together_with_that_for_all_brokers() -> None:
    before = image().with_broker_config("", {"max.connections.per.ip.overrides": "127.0.0.1:5"})
    assert result_of(before, change(BROKER, "1", (SET, "max.connections.per.ip", "0"))) == [(Error.NONE, None)]


def test_cleaner_threads_grow_by_steps() -> None:
    message = result_of(image(), change(BROKER, "1", (SET, "log.cleaner.threads", "3")))[0][1]
    assert "Log cleaner threads cannot be increased to more than double the current value 1" in str(message)
    assert result_of(image(), change(BROKER, "1", (SET, "log.cleaner.threads", "2"))) == [(Error.NONE, None)]


@pytest.mark.parametrize(
    ("current", "operation", "value", "expected"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact , delete", "compact,delete"),
        ("compact, delete", SUBTRACT, "delete", "compact"),
        ("delete", SUBTRACT, "compact", "delete"),
        (None, SUBTRACT, "delete", ""),
    ],
)
def test_lists_grow_and_shrink(current: str | None, operation: OperationType, value: str, expected: str) -> None:
    before = {} if current is None else {"cleanup.policy": current}
    after = apply_operations(change(TOPIC, "a", (operation, "cleanup.policy", value)), before, SETTINGS)
    assert after == {"cleanup.policy": expected}


def test_unset_list_starts_with_the_value_of_the_file() -> None:
    settings = BrokerSettings({"log.cleanup.policy": "compact"})
    asked = change(TOPIC, "a", (APPEND, "cleanup.policy", "delete"))
    assert apply_operations(asked, {}, settings) == {"cleanup.policy": "compact,delete"}
    asked = change(BROKER, "", (SUBTRACT, "log.cleanup.policy", "compact"))
    assert apply_operations(asked, {}, settings) == {"log.cleanup.policy": ""}
    asked = change(TOPIC, "a", (APPEND, "leader.replication.throttled.replicas", "0:1"))
    assert apply_operations(asked, {}, settings) == {"leader.replication.throttled.replicas": "0:1"}


def test_a_list_cannot_grow_without_end() -> None:
    key = "leader.replication.throttled.replicas"
    current = {key: ",".join(f"{number}:1" for number in range(4000))}
    assert len(current[key]) < VALUE_LENGTH_MAX
    more = ",".join(f"{number}:2" for number in range(4000))
    with pytest.raises(KafkaError, match="exceeds the maximum value size of 32767 bytes"):
        apply_operations(change(TOPIC, "a", (APPEND, key, more)), current, SETTINGS)


def test_replacing_all_removes_the_other_settings() -> None:
    asked = ConfigResourceChange(TOPIC, "a", (ConfigOperation(SET, "retention.ms", "5"),), replaces_all=True)
    assert apply_operations(asked, {"segment.ms": "6"}, SETTINGS) == {"retention.ms": "5"}
