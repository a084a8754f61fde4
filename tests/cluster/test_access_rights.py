"""Access rules in a cluster: in force on every broker within two seconds, also after a failover."""

import json
import time
from collections.abc import Callable

import pytest
from tests.cluster.conftest import promised
from tests.conformance.rights_asker import ADMINISTRATOR, Asker, close_to_others, give, take_all

from ottla.base.errors import Error
from ottla.base.security import Operation, ResourceType
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing.cluster import Cluster

NODE = "/kafka-acl/Topic/orders"
RULE = {"principal": "User:ANONYMOUS", "permissionType": "Allow", "operation": "Read", "host": "127.0.0.2"}
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def cluster(cluster_factory: Callable[..., Cluster]) -> Cluster:
    cluster = cluster_factory(brokers=3, settings=SETTINGS)
    cluster.create_topic("orders", partitions=1)
    with Asker(cluster.brokers[0].bootstrap_servers, ADMINISTRATOR) as administrator:
        close_to_others(administrator)
    return cluster


def is_seen(cluster: Cluster) -> list[bool]:
    """Whether a stranger sees the topic, by broker."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=False)
    seen = []
    for broker in cluster.live_brokers:
        with Asker(broker.bootstrap_servers) as stranger:
            error = stranger.ask(request, 12).topics[0].error_code
            assert error in (Error.NONE, Error.TOPIC_AUTHORIZATION_FAILED)
            seen.append(error == Error.NONE)
    return seen


def wait_until_seen(cluster: Cluster, expected: bool, seconds_max: float) -> None:
    began = time.monotonic()
    everywhere = [expected] * len(cluster.live_brokers)
    cluster.wait_for(lambda: is_seen(cluster) == everywhere or None, f"orders to be seen: {expected}")
    assert time.monotonic() - began < seconds_max


@promised(2.0)
def test_rules_are_in_force_on_all_brokers_and_stay_so(cluster: Cluster, seconds_max: float) -> None:
    assert is_seen(cluster) == [False] * 3
    for broker in cluster.brokers:  # one of them is the controller: the others pass it on
        with Asker(broker.bootstrap_servers, ADMINISTRATOR) as administrator:
            give(administrator, (Operation.READ, ResourceType.TOPIC, "orders"))
            wait_until_seen(cluster, True, seconds_max)
            take_all(administrator)
            wait_until_seen(cluster, False, seconds_max)
    with Asker(cluster.brokers[0].bootstrap_servers, ADMINISTRATOR) as administrator:
        give(administrator, (Operation.READ, ResourceType.TOPIC, "orders"))
    assert json.loads(cluster.read_node(NODE) or b"") == {"version": 1, "acls": [RULE]}
    cluster.controller().kill()
    cluster.wait_for(cluster.controller, "another controller")
    assert is_seen(cluster) == [True] * 2


@promised(2.0)
def test_rules_that_tools_of_kafka_3_write_into_zookeeper(cluster: Cluster, seconds_max: float) -> None:
    def notify() -> None:
        cluster.store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequence=True)

    cluster.store.create(NODE, json.dumps({"version": 1, "acls": [RULE]}).encode())
    notify()
    wait_until_seen(cluster, True, seconds_max)
    cluster.store.set(NODE, b'{"version":1,"acls":[{')
    notify()
    wait_until_seen(cluster, False, seconds_max)
    controller = cluster.controller()
    assert "1 nodes of the store cannot be read" in controller.output.read_text()
    with (
        Asker(cluster.brokers[0].bootstrap_servers, ADMINISTRATOR) as administrator,
        pytest.raises(AssertionError, match="56"),
    ):
        give(administrator, (Operation.WRITE, ResourceType.TOPIC, "orders"))
    assert cluster.read_node(NODE) == b'{"version":1,"acls":[{', "no broker writes to a damaged node"
    cluster.store.set(NODE, json.dumps({"version": 1, "acls": [RULE]}).encode())
    notify()
    wait_until_seen(cluster, True, seconds_max)
    prefixed = "/kafka-acl-extended/prefixed/Topic/ord"
    denial = {**RULE, "permissionType": "Deny", "operation": "All"}
    cluster.store.create(prefixed, json.dumps({"version": 1, "acls": [denial]}).encode())
    told = {"version": 1, "resourceType": "TOPIC", "name": "ord", "patternType": "PREFIXED"}
    cluster.store.create("/kafka-acl-extended-changes/acl_changes_", json.dumps(told).encode(), sequence=True)
    wait_until_seen(cluster, False, seconds_max)
    cluster.store.delete(prefixed)
    cluster.store.create("/kafka-acl-extended-changes/acl_changes_", json.dumps(told).encode(), sequence=True)
    wait_until_seen(cluster, True, seconds_max)
    # Another client writes at the same time: neither rule is lost.
    bob = {**RULE, "principal": "User:bob"}
    cluster.store.set(NODE, json.dumps({"version": 1, "acls": [RULE, bob]}).encode())
    with Asker(cluster.brokers[0].bootstrap_servers, ADMINISTRATOR) as administrator:
        give(administrator, (Operation.WRITE, ResourceType.TOPIC, "orders"))
    rules = json.loads(cluster.read_node(NODE) or b"")["acls"]
    assert sorted((rule["principal"], rule["operation"]) for rule in rules) == [
        ("User:ANONYMOUS", "Read"),
        ("User:ANONYMOUS", "Write"),
        ("User:bob", "Read"),
    ]
