"""The JSON of the nodes, as Kafka 3.9 stores it in ZooKeeper."""

import json
from uuid import UUID

import pytest

from ottla.controller import tree
from ottla.controller.image import BrokerImage, Endpoint, PartitionImage

TOPIC_ID = UUID("64e2ebf4-22cd-4234-96ef-4872207c7a05")


def test_an_id_is_written_as_kafka_writes_it() -> None:
    assert tree.encode_uuid(TOPIC_ID) == "ZOLr9CLNQjSW70hyIHx6BQ"
    assert tree.decode_uuid("ZOLr9CLNQjSW70hyIHx6BQ") == TOPIC_ID


def test_a_broker_node_has_what_zookeeper_clients_look_for() -> None:
    endpoints = {"PLAINTEXT": Endpoint("host1", 9092), "TLS": Endpoint("::1", 9093, "SSL")}
    broker = BrokerImage(3, endpoints, "rack-a", epoch=77)
    data = tree.encode_broker(broker, now_ms=1_600_000_000_000)
    assert json.loads(data) == {
        "version": 5,
        "host": "host1",
        "port": 9092,
        "endpoints": ["PLAINTEXT://host1:9092", "TLS://[::1]:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"},
        "jmx_port": -1,
        "features": {},
        "timestamp": "1600000000000",
        "rack": "rack-a",
    }
    assert tree.decode_broker(3, data, epoch=77) == broker


def test_a_broker_says_which_levels_of_features_it_supports() -> None:
    broker = BrokerImage(3, {"PLAINTEXT": Endpoint("h", 1)}, None, 7, features={"ottla.version": (1, 2)})
    data = tree.encode_broker(broker, 0)
    assert json.loads(data)["features"] == {"ottla.version": {"min_version": 1, "max_version": 2}}
    assert tree.decode_broker(3, data, 7) == broker
    assert tree.decode_broker(
        3, data.replace(b'{"min_version":1,"max_version":2}', b'{"max_version":4}'), 7
    ).features == {"ottla.version": (1, 4)}


def test_a_broker_without_a_plain_listener_has_no_host() -> None:
    fields = json.loads(tree.encode_broker(BrokerImage(3, {"TLS": Endpoint("h", 1, "SSL")}, None, 0), 0))
    assert (fields["host"], fields["port"], "rack" in fields) == (None, -1, False)


def test_old_broker_nodes_are_read() -> None:
    old = b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9092"]}'
    assert tree.decode_broker(1, old, 5).endpoints == {"PLAINTEXT": Endpoint("h", 9092)}
    oldest = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}'
    assert tree.decode_broker(1, oldest, 5).endpoints == {"PLAINTEXT": Endpoint("h", 9092)}


def test_a_topic_node_has_version_3_and_its_moving_replicas() -> None:
    partitions = [
        PartitionImage(1, 0, (1,), (1, 2)),
        PartitionImage(2, 0, (2,), (2, 3, 1), adding_replicas=(3,), removing_replicas=(1,)),
    ]
    data = tree.encode_topic(TOPIC_ID, partitions)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "ZOLr9CLNQjSW70hyIHx6BQ",
        "partitions": {"0": [1, 2], "1": [2, 3, 1]},
        "adding_replicas": {"1": [3]},
        "removing_replicas": {"1": [1]},
    }
    assert tree.decode_topic("t", data) == tree.TopicNode(TOPIC_ID, {0: (1, 2), 1: (2, 3, 1)}, {1: (3,)}, {1: (1,)})


def test_a_topic_node_of_version_1_is_read() -> None:
    assert tree.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}') == tree.TopicNode(None, {0: (1,)}, {}, {})


def test_a_partition_state_is_the_json_that_it_looks_like() -> None:
    state = tree.PartitionState(1, 4, (1, 2), controller_epoch=9)
    data = tree.encode_partition_state(state)
    assert json.loads(data) == {"version": 1, "leader": 1, "leader_epoch": 4, "isr": [1, 2], "controller_epoch": 9}
    assert tree.decode_partition_state("/p", data) == state
    recovering = state._replace(isr=(), leader_recovery_state=1)
    assert tree.decode_partition_state("/p", tree.encode_partition_state(recovering)) == recovering


def test_single_values() -> None:
    assert json.loads(tree.encode_controller(4, 12)) == {
        "version": 2,
        "brokerid": 4,
        "timestamp": "12",
        "kraftControllerEpoch": -1,
    }
    assert tree.decode_controller(tree.encode_controller(4, 12)) == 4
    assert tree.encode_number(17) == b"17"
    assert tree.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert tree.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    assert json.loads(tree.encode_config_change("topics", "t")) == {"version": 2, "entity_path": "topics/t"}
    assert json.loads(tree.encode_config_change("brokers", ""))["entity_path"] == "brokers/<default>"


def test_configs() -> None:
    assert tree.config_path("brokers", "") == "/config/brokers/<default>"
    data = tree.encode_config({"retention.ms": "5"})
    assert data == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert tree.decode_config("/p", data) == {"retention.ms": "5"}
    assert tree.decode_config("/p", b"") == {}


def test_a_block_of_producer_ids_has_its_ends_as_text() -> None:
    block = tree.ProducerIdBlock(1, 2000, 2999)
    data = tree.encode_producer_id_block(block)
    assert json.loads(data) == {"version": 1, "broker": 1, "block_start": "2000", "block_end": "2999"}
    assert tree.decode_producer_id_block(data) == block


def test_features_of_both_versions_are_read() -> None:
    assert tree.decode_feature(tree.encode_feature({"group.version": 1})) == {"group.version": 1}
    old = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert tree.decode_feature(old) == {"f": 3}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"partitions":5}', b'{"partitions":{"x":[1]}}', b"{}"])
def test_a_damaged_topic_is_named(data: bytes) -> None:
    with pytest.raises(ValueError, match="/brokers/topics/t is damaged"):
        tree.decode_topic("t", data)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"leader":1,"leader_epoch":1,"isr":3,"controller_epoch":1}'])
def test_a_damaged_state_is_named(data: bytes) -> None:
    with pytest.raises(ValueError, match="/here is damaged"):
        tree.decode_partition_state("/here", data)


def test_other_damage_is_named() -> None:
    with pytest.raises(ValueError, match="/controller_epoch is damaged"):
        tree.decode_number(tree.CONTROLLER_EPOCH, b"x")
    with pytest.raises(ValueError, match="/latest_producer_id_block is damaged"):
        tree.decode_producer_id_block(b"{}")
    with pytest.raises(ValueError, match="/c is damaged"):
        tree.decode_config("/c", b'{"config":[]}')
    with pytest.raises(ValueError, match="/feature is damaged"):
        tree.decode_feature(b'{"features":{"f":"x"}}')
    with pytest.raises(ValueError, match="/brokers/ids/1 is damaged"):
        tree.decode_broker(1, b'{"endpoints":["nonsense"]}', 0)
    with pytest.raises(ValueError, match="/controller is damaged"):
        tree.decode_controller(b"{}")
    with pytest.raises(ValueError, match="/cluster/id is damaged"):
        tree.decode_cluster_id(b"{}")
