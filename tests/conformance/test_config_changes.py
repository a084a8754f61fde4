"""AlterConfigs and IncrementalAlterConfigs: refusals word by word, and what a change leaves behind.

Every expectation holds for Apache Kafka 4.3 too. docs/settings.md lists the intended differences.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.config_requests import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DEFAULT,
    DELETE,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    FROM_TOPIC,
    GROUP,
    LOGGER,
    LONG,
    OK,
    SECONDS_MAX,
    SET,
    SUBTRACT,
    TOPIC,
    change,
    entries,
    replace,
    synonyms_of,
    wait_for,
)
from tests.conformance.peer import Peer


@pytest.fixture
def clean_broker_settings(peer: Peer) -> Iterator[None]:
    yield
    keys = ("log.retention.ms", "log.cleanup.policy", "message.max.bytes", "leader.replication.throttled.rate")
    for name in ("1", ""):
        assert change(peer, (BROKER, name, [(key, DELETE, None) for key in keys])) == [OK]


# ---- change topics


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        ([("retention.ms", SET, "60000")], 0, None),
        ([], 0, None),
        ([("retention.ms", DELETE, "ignored")], 0, None),
        ([("no.such.key", DELETE, None)], 0, None),
        ([("cleanup.policy", APPEND, "compact")], 0, None),
        ([("cleanup.policy", SUBTRACT, "delete")], 0, None),
        ([("leader.replication.throttled.replicas", SET, "*")], 0, None),
        ([("min.insync.replicas", SET, "5")], 0, None),
        ([("internal.segment.bytes", SET, "1000")], 0, None),
        ([("remote.storage.enable", SET, "false")], 0, None),
        ([("no.such.key", SET, "1")], 40, "Unknown topic config name: no.such.key"),
        ([("", SET, "1")], 40, "Unknown topic config name: "),
        (
            [("retention.ms", SET, "abc")],
            40,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ([("retention.ms", SET, "")], 40, "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        (
            [("retention.ms", SET, "-2")],
            40,
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            [("segment.bytes", SET, "1000")],
            40,
            "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            [("segment.bytes", SET, "99999999999")],
            40,
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            [("cleanup.policy", SET, "shred")],
            40,
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ([("cleanup.policy", SET, "delete,")], 40, "Configuration 'cleanup.policy' values must not be empty."),
        (
            [("compression.type", SET, "GZIP")],
            40,
            (
                "Invalid value GZIP for configuration compression.type: "
                "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"
            ),
        ),
        (
            [("compression.gzip.level", SET, "0")],
            40,
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            [("message.timestamp.type", SET, "Never")],
            40,
            (
                "Invalid value Never for configuration message.timestamp.type: "
                "String must be one of: CreateTime, LogAppendTime"
            ),
        ),
        (
            [("min.cleanable.dirty.ratio", SET, "2")],
            40,
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            [("preallocate", SET, "maybe")],
            40,
            "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
        ),
        (
            [("min.insync.replicas", SET, "0")],
            40,
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        (
            [("leader.replication.throttled.replicas", SET, "0:1,x")],
            40,
            (
                "Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
        (
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            40,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            [("remote.storage.enable", SET, "true")],
            40,
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
        ([("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], 42, "Error due to duplicate config keys"),
        ([("retention.ms", APPEND, "5")], 40, "Can't APPEND to key retention.ms because its type is not LIST."),
        ([("no.such.key", SUBTRACT, "5")], 40, "Can't SUBTRACT to key no.such.key because its type is not LIST."),
        ([("retention.ms", SET, "1"), ("no.such.key", SET, "2")], 40, "Unknown topic config name: no.such.key"),
    ],
)
def test_changes_of_a_topic_are_validated_as_by_kafka(
    peer: Peer, topic: str, operations: list[Any], code: int, message: str | None
) -> None:
    assert change(peer, (TOPIC, topic, operations), validate_only=True) == [(code, message)]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("no-such-topic", 3, "The topic 'no-such-topic' does not exist."),
        ("", 42, "Default topic resources are not allowed."),
        (
            "a b",
            17,
            (
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, "
                "'.', '_' and '-'"
            ),
        ),
    ],
)
def test_a_topic_that_cannot_be_changed(peer: Peer, name: str, code: int, message: str) -> None:
    assert change(peer, (TOPIC, name, [("retention.ms", SET, "1")])) == [(code, message)]
    assert replace(peer, (TOPIC, name, [("retention.ms", "1")])) == [(code, message)]


@pytest.mark.parametrize("version", [0, 1])
def test_a_topics_settings_are_set_and_deleted(peer: Peer, topic: str, version: int) -> None:
    assert change(peer, (TOPIC, topic, [("retention.ms", SET, "60000")]), version=version) == [OK]
    entry = wait_for(peer, TOPIC, topic, "retention.ms", "60000")
    assert (entry.config_source, synonyms_of(entry)) == (FROM_TOPIC, [("retention.ms", "60000", FROM_TOPIC)])
    assert change(peer, (TOPIC, topic, [("retention.ms", DELETE, None)]), version=version) == [OK]
    wait_for(peer, TOPIC, topic, "retention.ms", "604800000")


def test_list_settings_grow_and_shrink_by_items(peer: Peer, topic: str) -> None:
    steps = [
        ((APPEND, "compact"), "delete,compact"),
        ((APPEND, "compact,delete"), "delete,compact"),
        ((SUBTRACT, "delete"), "compact"),
        ((SUBTRACT, "delete"), "compact"),
    ]
    for (operation, value), expected in steps:
        assert change(peer, (TOPIC, topic, [("cleanup.policy", operation, value)])) == [OK]
        wait_for(peer, TOPIC, topic, "cleanup.policy", expected)


def test_validate_only_changes_nothing(peer: Peer, topic: str) -> None:
    assert change(peer, (TOPIC, topic, [("retention.ms", SET, "1")]), validate_only=True) == [OK]
    assert replace(peer, (TOPIC, topic, [("retention.ms", "1")]), validate_only=True) == [OK]
    time.sleep(0.2)
    assert entries(peer, TOPIC, topic, ["retention.ms"])["retention.ms"].value == "604800000"


def test_one_bad_resource_does_not_stop_another(peer: Peer, topic: str) -> None:
    rows = [(TOPIC, "no-such-topic", [("retention.ms", SET, "1")]), (TOPIC, topic, [("retention.ms", SET, "777")])]
    assert change(peer, *rows) == [(3, "The topic 'no-such-topic' does not exist."), OK]
    wait_for(peer, TOPIC, topic, "retention.ms", "777")


def test_a_resource_may_come_once(peer: Peer, topic: str) -> None:
    row = (TOPIC, topic, [("retention.ms", SET, "1")])
    assert change(peer, row, row) == [(42, "Each resource must appear at most once.")] * 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_request_replaces_all_of_a_topics_settings(peer: Peer, new_topic: Any, version: int) -> None:
    name = new_topic(segment_bytes="2000000")
    assert replace(peer, (TOPIC, name, [("retention.ms", "55")]), version=version) == [OK]
    wait_for(peer, TOPIC, name, "retention.ms", "55")
    wait_for(peer, TOPIC, name, "segment.bytes", "1073741824")


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ([("retention.ms", "x")], 40, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ([("no.such.key", "x")], 40, "Unknown topic config name: no.such.key"),
        ([("retention.ms", None)], 42, "Null value not supported for : retention.ms"),
        ([("retention.ms", "1"), ("retention.ms", "2")], 42, "Error due to duplicate config keys"),
    ],
)
def test_the_older_request_is_validated_the_same_way(
    peer: Peer, topic: str, settings: list[Any], code: int, message: str
) -> None:
    assert replace(peer, (TOPIC, topic, settings)) == [(code, message)]


# ---- change brokers


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        (("log.retention.ms", SET, "5"), 0, None),
        (("num.partitions", DELETE, None), 0, None),
        (("no.such.key", DELETE, None), 0, None),
        (("log.cleanup.policy", APPEND, "compact"), 0, None),
        (("num.io.threads", SET, "16"), 0, None),
        (("leader.replication.throttled.rate", SET, "100"), 0, None),
        (("num.partitions", SET, "5"), 42, "Cannot update these configs dynamically: [num.partitions]"),
        (("log.retention.hours", SET, "5"), 42, "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            ("advertised.listeners", SET, "PLAINTEXT://x:1"),
            42,
            "Cannot update these configs dynamically: [advertised.listeners]",
        ),
        (
            ("log.retention.ms", SET, "abc"),
            42,
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            ("log.retention.ms", SET, "0"),
            42,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            ("log.segment.bytes", SET, "100"),
            42,
            "Invalid value 100 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            ("max.connections.per.ip", SET, "0"),
            42,
            (
                "requirement failed: max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            ),
        ),
        (
            ("num.io.threads", SET, "17"),
            42,
            (
                "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation "
                "failed for num.io.threads=17, value should not be greater than double the current value 8 "
                "for configuration Invalid dynamic configuration"
            ),
        ),
        (
            ("num.io.threads", SET, "3"),
            42,
            (
                "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation "
                "failed for num.io.threads=3, value should be at least half the current value 8 "
                "for configuration Invalid dynamic configuration"
            ),
        ),
        (
            ("leader.replication.throttled.rate", SET, "-1"),
            42,
            "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
        ),
        (("num.io.threads", APPEND, "1"), 40, "Config value append is not allowed for config key: num.io.threads"),
        (("no.such.key", APPEND, "1"), 40, "Unknown config name: no.such.key"),
        (("log.retention.ms", SET, None), 42, "Null value not supported for : log.retention.ms"),
    ],
)
def test_changes_of_a_broker_are_validated_as_by_kafka(
    peer: Peer, name: str, operation: Any, code: int, message: str | None
) -> None:
    assert change(peer, (BROKER, name, [operation]), validate_only=True) == [(code, message)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2", "Unexpected broker id, expected 1, but received 2"),
        ("-1", "Unexpected broker id, expected 1, but received -1"),
        ("abc", "Node id must be an integer, but it is: abc"),
    ],
)
def test_a_broker_changes_only_itself(peer: Peer, name: str, message: str) -> None:
    assert change(peer, (BROKER, name, [("log.retention.ms", SET, "5")])) == [(42, message)]
    assert replace(peer, (BROKER, name, [("log.retention.ms", "5")])) == [(42, message)]


@pytest.mark.usefixtures("clean_broker_settings")
def test_a_brokers_layers_show_up_in_their_order_and_in_its_topics(peer: Peer, topic: str) -> None:
    assert change(
        peer, (BROKER, "", [("log.retention.ms", SET, "888"), ("log.cleanup.policy", SET, "delete, compact")])
    ) == [OK]
    assert change(peer, (BROKER, "1", [("log.retention.ms", SET, " 777 ")])) == [OK]
    expected = [
        ("log.retention.ms", " 777 ", DYNAMIC_BROKER),
        ("log.retention.ms", "888", DYNAMIC_DEFAULT),
        ("log.retention.hours", "168", DEFAULT),
    ]
    entry = wait_for(peer, BROKER, "1", "log.retention.ms", "777")
    assert (entry.config_source, synonyms_of(entry)) == (DYNAMIC_BROKER, expected)
    of_topic = wait_for(peer, TOPIC, topic, "retention.ms", "777")
    assert (of_topic.config_source, synonyms_of(of_topic)) == (DYNAMIC_BROKER, expected)
    policy = wait_for(peer, TOPIC, topic, "cleanup.policy", "delete,compact")
    assert (policy.config_source, synonyms_of(policy)) == (
        DYNAMIC_DEFAULT,
        [("log.cleanup.policy", "delete, compact", DYNAMIC_DEFAULT), ("log.cleanup.policy", "delete", DEFAULT)],
    )
    for_all = entries(peer, BROKER, "", ["log.retention.ms", "log.cleanup.policy"])
    assert for_all["log.cleanup.policy"].value == "delete, compact"
    assert synonyms_of(for_all["log.retention.ms"]) == [("log.retention.ms", "888", DYNAMIC_DEFAULT)]


@pytest.mark.usefixtures("clean_broker_settings")
def test_a_key_that_only_tools_set_is_shown_while_it_is_set(peer: Peer) -> None:
    key = "leader.replication.throttled.rate"
    assert key not in entries(peer, BROKER, "1")
    assert change(peer, (BROKER, "1", [(key, SET, "100")])) == [OK]
    entry = wait_for(peer, BROKER, "1", key, "100")
    assert (entry.config_type, entry.read_only, synonyms_of(entry)) == (LONG, False, [(key, "100", DYNAMIC_BROKER)])


@pytest.mark.usefixtures("clean_broker_settings")
def wait_until_shown(peer: Peer, broker: str, key: str) -> Any:
    deadline = time.monotonic() + SECONDS_MAX
    while (entry := entries(peer, BROKER, broker, [key]).get(key)) is None:
        assert time.monotonic() < deadline
    return entry


@pytest.mark.parametrize(("name", "source"), [("1", DYNAMIC_BROKER), ("", DYNAMIC_DEFAULT)])
def test_a_name_that_only_plug_ins_know_is_stored_and_hidden(peer: Peer, name: str, source: int) -> None:
    keys = ("my.plugin.key", "my plug-in=key,odd")
    assert change(peer, (BROKER, name, [(key, SET, "a value") for key in keys])) == [OK]
    try:
        for key in keys:
            entry = wait_until_shown(peer, name, key)
            assert (entry.read_only, entry.is_sensitive, entry.config_type) == (True, True, 0)
            assert (entry.config_source, synonyms_of(entry)) == (source, [(key, None, source)])
        assert change(peer, (BROKER, name, [(keys[0], APPEND, "x")])) == [(40, f"Unknown config name: {keys[0]}")]
    finally:
        assert change(peer, (BROKER, name, [(key, DELETE, None) for key in keys])) == [OK]


def test_a_name_of_a_listener_that_is_not_known_is_one_broker_s(peer: Peer) -> None:
    key = "listener.name.plaintext.no.such.key"
    sentence = "Cannot update these configs at default cluster level, broker id must be specified"
    assert change(peer, (BROKER, "", [(key, SET, "x")])) == [(42, f"{sentence}: [{key}]")]
    assert change(peer, (BROKER, "1", [(key, SET, "x")])) == [OK]
    assert change(peer, (BROKER, "1", [(key, DELETE, None)])) == [OK]


def test_the_older_request_replaces_all_of_a_brokers_changes(peer: Peer) -> None:
    assert change(peer, (BROKER, "1", [("log.retention.ms", SET, "777")])) == [OK]
    wait_for(peer, BROKER, "1", "log.retention.ms", "777")
    assert replace(peer, (BROKER, "1", [("message.max.bytes", "2000000")])) == [OK]
    wait_for(peer, BROKER, "1", "message.max.bytes", "2000000")
    wait_for(peer, BROKER, "1", "log.retention.ms", None)
    assert replace(peer, (BROKER, "1", [])) == [OK]


# ---- loggers and the rest


@pytest.mark.parametrize(
    ("name", "operation", "code", "message"),
    [
        ("1", ("root", SET, "INFO"), 0, None),
        ("1", ("no-such-logger", SET, "DEBUG"), 40, "Logger no-such-logger does not exist!"),
        ("1", ("root", DELETE, None), 42, "Removing the log level of the root logger is not allowed"),
        ("1", ("root", APPEND, "DEBUG"), 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        (
            "1",
            ("root", SET, "debug"),
            40,
            (
                "Cannot set the log level of root to debug as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
            ),
        ),
        ("", ("root", SET, "INFO"), 42, "Node id must be an integer, but it is: "),
        ("2", ("root", SET, "INFO"), 42, "Unexpected node id. Expected 1, but received 2"),
    ],
)
def test_changes_of_loggers(peer: Peer, name: str, operation: Any, code: int, message: str | None) -> None:
    assert change(peer, (LOGGER, name, [operation]), validate_only=True) == [(code, message)]


def test_other_kinds_of_resources_cannot_be_changed(peer: Peer) -> None:
    for kind in (0, 1, 3, 77):
        assert change(peer, (kind, "x", [("a", SET, "b")])) == [(42, f"Unknown resource type {kind}")]
        assert replace(peer, (kind, "x", [("a", "b")])) == [(42, f"Unknown resource type {kind}")]
    assert replace(peer, (LOGGER, "1", [("root", "INFO")])) == [(42, "Unknown resource type 8")]
    assert change(peer, (GROUP, "", [("a", SET, "b")])) == [(42, "Default group resources are not allowed.")]
    assert change(peer, (CLIENT_METRICS, "", [("a", SET, "b")])) == [(42, "Subscription name can't be empty")]


# ---- one min.insync.replicas for all (KIP-966)

MINIMUM = "min.insync.replicas"
BROKER_LEVEL = (40, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
CLUSTER_LEVEL = (40, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")


def test_the_cluster_has_one_minimum_that_can_be_changed_and_not_removed(peer: Peer) -> None:
    try:
        entry = wait_for(peer, BROKER, "", MINIMUM, "1")
        assert (entry.config_source, entry.read_only, synonyms_of(entry)) == (
            DYNAMIC_DEFAULT,
            False,
            [(MINIMUM, "1", DYNAMIC_DEFAULT)],
        )
        assert change(peer, (BROKER, "", [(MINIMUM, SET, "2")])) == [OK]
        entry = wait_for(peer, BROKER, "1", MINIMUM, "2")
        assert synonyms_of(entry) == [(MINIMUM, "2", DYNAMIC_DEFAULT), (MINIMUM, "1", DEFAULT)]
        assert change(peer, (BROKER, "", [(MINIMUM, DELETE, None)])) == [CLUSTER_LEVEL]
        assert replace(peer, (BROKER, "", [("log.retention.ms", "100000")])) == [CLUSTER_LEVEL]
        for operation in ((MINIMUM, SET, "2"), (MINIMUM, DELETE, None)):
            assert change(peer, (BROKER, "1", [operation])) == [BROKER_LEVEL]
        assert replace(peer, (BROKER, "1", [(MINIMUM, "2")])) == [BROKER_LEVEL]
        refused = "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"
        for name in ("", "1"):
            assert change(peer, (BROKER, name, [(MINIMUM, SET, "0")])) == [(42, refused)]
    finally:
        assert change(peer, (BROKER, "", [(MINIMUM, SET, "1")])) == [OK]
        wait_for(peer, BROKER, "1", MINIMUM, "1")
