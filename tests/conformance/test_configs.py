"""DescribeConfigs, field by field. Every expectation holds for Apache Kafka 4.3 too.

docs/settings.md lists the intended differences; they are not tested here.
"""

from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest
from tests.conformance.config_requests import (
    BOOLEAN,
    BROKER,
    CLASS,
    CLIENT_METRICS,
    DEFAULT,
    DOUBLE,
    DYNAMIC_DEFAULT,
    DYNAMIC_LOGGER,
    FROM_TOPIC,
    GROUP,
    INT,
    LIST,
    LOGGER,
    LONG,
    PASSWORD,
    SHORT,
    STATIC,
    STRING,
    TOPIC,
    describe,
    entries,
    synonyms_of,
)
from tests.conformance.peer import Peer

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to "
    "an incompatible broker. See the broker logs for more details."
)


@pytest.mark.parametrize(
    ("key", "kind", "default"),
    [
        ("num.partitions", INT, "1"),
        ("log.retention.hours", INT, "168"),
        ("log.retention.ms", LONG, None),
        ("auto.create.topics.enable", BOOLEAN, "true"),
        ("compression.type", STRING, "producer"),
        ("log.cleaner.min.cleanable.ratio", DOUBLE, "0.5"),
        ("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308"),
        ("sasl.login.refresh.buffer.seconds", SHORT, "300"),
        ("log.cleanup.policy", LIST, "delete"),
        ("ssl.engine.factory.class", CLASS, None),
        ("ssl.keystore.password", PASSWORD, None),
        ("message.max.bytes", INT, "1048588"),
        ("log.dir", LIST, "/tmp/kafka-logs"),
        ("broker.rack", STRING, None),
    ],
)
def test_broker_keys_have_kafkas_types_and_defaults(peer: Peer, key: str, kind: int, default: str | None) -> None:
    entry = entries(peer, BROKER, "1", [key])[key]
    assert (entry.value, entry.config_type, entry.is_sensitive) == (default, kind, kind == PASSWORD)
    assert entry.documentation is None
    if default is not None:
        assert synonyms_of(entry)[-1] == (key, default, DEFAULT)


def test_all_keys_of_a_broker_are_shown_for_no_filter_and_for_an_empty_one(peer: Peer) -> None:
    everything = entries(peer, BROKER, "1")
    assert len(everything) >= 340
    assert entries(peer, BROKER, "1", []).keys() == everything.keys()
    assert {"listeners", "log.dirs", "node.id", "process.roles"} <= everything.keys()
    assert not {"producer.id.expiration.check.interval.ms", "unstable.api.versions.enable"} & everything.keys(), (
        "hidden"
    )


def test_read_only_and_changeable_keys_are_distinguished(peer: Peer) -> None:
    found = entries(peer, BROKER, "1", ["num.partitions", "log.retention.ms", "log.retention.hours", "num.io.threads"])
    assert {name: entry.read_only for name, entry in found.items()} == {
        "num.partitions": True,
        "log.retention.ms": False,
        "log.retention.hours": True,
        "num.io.threads": False,
    }


def test_values_of_the_file_are_static_and_override_defaults(peer: Peer) -> None:
    entry = entries(peer, BROKER, "1", ["broker.id"])["broker.id"]
    assert (entry.value, entry.config_source, entry.read_only) == ("1", STATIC, True)
    assert synonyms_of(entry) == [("broker.id", "1", STATIC), ("broker.id", "-1", DEFAULT)]
    node_id = entries(peer, BROKER, "1", ["node.id"])["node.id"]
    assert synonyms_of(node_id) == [("node.id", "1", STATIC)]


def test_a_coarser_key_is_no_synonym_while_the_finer_one_is_not_set(peer: Peer) -> None:
    found = entries(peer, BROKER, "1", ["log.retention.ms", "log.retention.hours", "log.flush.interval.ms"])
    assert synonyms_of(found["log.retention.ms"]) == synonyms_of(found["log.flush.interval.ms"]) == []
    assert synonyms_of(found["log.retention.hours"]) == [("log.retention.hours", "168", DEFAULT)]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_of_describe(peer: Peer, topic: str, version: int) -> None:
    result = describe(peer, TOPIC, topic, ["segment.bytes", "no.such.key"], version=version)
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_source) == ("segment.bytes", "1073741824", DEFAULT)
    assert synonyms_of(entry) == [("log.segment.bytes", "1073741824", DEFAULT)]
    if version >= 3:
        assert (entry.config_type, entry.documentation) == (INT, None)


def test_synonyms_and_documentation_come_only_when_asked_for(peer: Peer, topic: str) -> None:
    plain = entries(peer, TOPIC, topic, ["retention.ms"], synonyms=False)["retention.ms"]
    assert (plain.synonyms, plain.documentation) == ([], None)
    told = entries(peer, TOPIC, topic, ["retention.ms"], documentation=True)["retention.ms"]
    assert len(told.documentation) > 20


def test_a_new_topic_shows_the_brokers_values(peer: Peer, topic: str) -> None:
    found = entries(peer, TOPIC, topic)
    assert len(found) == 33
    assert not any(entry.read_only or entry.is_sensitive for entry in found.values())
    assert {name: synonyms_of(found[name]) for name in ("retention.ms", "segment.ms", "flush.ms")} == {
        "retention.ms": [],
        "segment.ms": [],
        "flush.ms": [],
    }
    assert found["retention.ms"].value == found["segment.ms"].value == "604800000"
    assert found["flush.ms"].value == "9223372036854775807"
    assert found["remote.storage.enable"].value == "false"
    assert found["leader.replication.throttled.replicas"].value == ""
    assert {entry.config_source for entry in found.values()} <= {DEFAULT, DYNAMIC_DEFAULT}


def test_a_topics_own_value_stands_first(peer: Peer, new_topic: Any) -> None:
    name = new_topic(min_cleanable_dirty_ratio="0.50", cleanup_policy="compact, delete", internal_segment_bytes="5000")
    found = entries(peer, TOPIC, name)
    ratio = found["min.cleanable.dirty.ratio"]
    assert (ratio.value, ratio.config_source, ratio.config_type) == ("0.5", FROM_TOPIC, DOUBLE)
    assert synonyms_of(ratio) == [
        ("min.cleanable.dirty.ratio", "0.5", FROM_TOPIC),
        ("log.cleaner.min.cleanable.ratio", "0.5", DEFAULT),
    ]
    assert found["cleanup.policy"].value == "compact,delete"
    assert found["internal.segment.bytes"].value == "5000", "an internal key is shown once it is set"


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "message"),
    [
        (TOPIC, "no-such-topic", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "-1", 42, "Unexpected broker id, expected 1 or empty string, but received -1"),
        (BROKER, "abc", 42, "Broker id must be an integer, but it is: abc"),
        (LOGGER, "", 42, "Broker id must not be empty"),
        (LOGGER, "2", 42, "Unexpected broker id, expected 1 but received 2"),
        (LOGGER, "abc", 42, "Broker id must be an integer, but it is: abc"),
        (CLIENT_METRICS, "", 42, "Client metrics subscription name must not be empty"),
        (GROUP, "", 42, "Group name must not be empty"),
        (0, "x", 42, MALFORMED),
        (77, "x", 42, MALFORMED),
    ],
)
def test_unknown_resources_are_refused(peer: Peer, resource_type: int, name: str, code: int, message: str) -> None:
    result = describe(peer, resource_type, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


def test_each_resource_of_a_request_is_answered_even_twice(peer: Peer, topic: str) -> None:
    rows = [(TOPIC, topic, ["retention.ms"]), (TOPIC, "no-such-topic", None), (TOPIC, topic, ["retention.ms"])]
    answer = peer.ask(DescribeConfigsRequest(resources=rows, include_synonyms=False, include_documentation=False), 4)
    assert sorted((row.resource_name, row.error_code, len(row.configs)) for row in answer.results) == sorted(
        [(topic, 0, 1), ("no-such-topic", 3, 0), (topic, 0, 1)]
    )


def test_a_group_shows_the_brokers_defaults(peer: Peer) -> None:
    found = entries(peer, GROUP, "some-group")
    assert len(found) == 17
    timeout = found["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.config_source, timeout.config_type) == ("45000", DEFAULT, INT)
    assert synonyms_of(timeout) == [("group.consumer.session.timeout.ms", "45000", DEFAULT)]
    assert synonyms_of(found["share.isolation.level"]) == [("share.isolation.level", "read_uncommitted", DEFAULT)]


def test_a_subscription_to_client_metrics_shows_its_defaults(peer: Peer) -> None:
    found = entries(peer, CLIENT_METRICS, "nobody")
    assert {name: (entry.value, entry.config_type, synonyms_of(entry)) for name, entry in found.items()} == {
        "interval.ms": ("300000", INT, []),
        "match": ("", LIST, []),
        "metrics": ("", LIST, []),
    }


def test_loggers_have_levels(peer: Peer) -> None:
    root = entries(peer, LOGGER, "1", ["root", "no-such-logger"])
    assert list(root) == ["root"]
    assert (root["root"].value, root["root"].config_source, root["root"].config_type) == ("INFO", DYNAMIC_LOGGER, 0)
    assert (root["root"].synonyms, root["root"].documentation) == ([], "")
