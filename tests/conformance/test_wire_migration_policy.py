"""What `group.consumer.migration.policy` lets members of the two protocols do in one group.

On a foreign broker those run whose policy it has.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.config_requests import BROKER, entries
from tests.conformance.group_calls import GroupCalls, assignment, find_coordinator, subscription
from tests.conformance.peer import Peer
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

KEY = "group.consumer.migration.policy"
NONE, INCONSISTENT_PROTOCOL, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, GROUP_NOT_FOUND = 0, 23, 79, 27, 69
INTERVAL_SECONDS = 1.1


class Groups:
    """A group on a broker with one policy, and a topic of four partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.topic = f"policy-{uuid.uuid4().hex[:8]}"
        self.classic = GroupCalls(Peer(bootstrap), self.topic)
        self.new = GroupCalls(Peer(bootstrap), self.topic)
        peer = self.classic.peer
        self.topic_id = peer.create_topic(self.topic, 4)
        deadline = time.monotonic() + 30
        while find_coordinator(peer, self.topic).error_code or self.classic.heartbeat("x", 1) in (14, 15, 16):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if FOREIGN_BOOTSTRAP:
            time.sleep(0.5)  # Apache Kafka's coordinator hears of a topic a little later than its clients
        self.protocols = {"range": subscription(self.topic, version=3)}
        self.given = assignment({self.topic: [0, 1, 2, 3]}, 3)

    def start_classic(self) -> str:
        member = str(self.classic.enter(protocols=self.protocols).member_id)
        assert self.classic.sync(member, 1, {member: self.given}).error_code == 0
        return member

    def shown(self) -> tuple[str, str]:
        row = self.classic.listed()
        assert row is not None
        return row.group_type, row.group_state


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Callable[[str], Groups]]:
    made: list[Broker] = []

    def with_policy(policy: str) -> Groups:
        if not FOREIGN_BOOTSTRAP:
            made.append(Broker(tmp_path / "broker", {KEY: policy, "group.initial.rebalance.delay.ms": "0"}))
            return Groups(made[0].start().bootstrap)
        with Peer(FOREIGN_BOOTSTRAP) as peer:
            brokers = peer.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).brokers
            found = entries(peer, BROKER, str(brokers[0].node_id), [KEY])[KEY].value
        if found.lower() != policy:
            pytest.skip(f"the policy of this broker is {found}")
        return Groups(FOREIGN_BOOTSTRAP)

    try:
        yield with_policy
        for broker in made:
            broker.stop()
    finally:
        for broker in made:
            broker.discard()


def test_without_migration_a_classic_client_is_refused_at_once(groups: Callable[[str], Groups]) -> None:
    each = groups("disabled")
    each.new.consumer_join("A", [each.topic])
    for version in range(10):
        refused = each.classic.join("", version, protocols=each.protocols)
        assert (refused.error_code, refused.member_id) == (INCONSISTENT_PROTOCOL, "")
    for member_id, instance_id in (("", "one"), ("x", None), ("x", "one")):
        refused = each.classic.join(member_id, protocols=each.protocols, instance_id=instance_id)
        assert (refused.error_code, refused.member_id) == (INCONSISTENT_PROTOCOL, "")
    assert each.shown() == ("consumer", "Stable")
    each.new.consumer_heartbeat("A", -1)
    assert each.classic.join(protocols=each.protocols).error_code == MEMBER_ID_REQUIRED


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_is_not_upgraded_against_the_policy(groups: Callable[[str], Groups], policy: str) -> None:
    each = groups(policy)
    member = each.start_classic()
    refused = each.new.consumer_join("A", [each.topic])
    assert refused.error == GROUP_NOT_FOUND
    assert str(refused.message).endswith("because online upgrade is disabled.")
    assert each.classic.heartbeat(member, 1) == 0
    assert each.shown() == ("classic", "Stable")


@pytest.mark.parametrize(("policy", "kind"), [("downgrade", "classic"), ("upgrade", "consumer")])
def test_the_policy_says_what_becomes_of_a_group_whose_last_new_member_joins_again_the_classic_way(
    groups: Callable[[str], Groups], policy: str, kind: str
) -> None:
    each = groups(policy)
    each.new.consumer_join("A", [each.topic], instance_id="one")
    time.sleep(INTERVAL_SECONDS)
    joined = each.classic.join(protocols=each.protocols, instance_id="one")
    assert each.shown() == (kind, "Stable")
    synced = each.classic.sync(joined.member_id, joined.generation_id, instance_id="one")
    assert (synced.error_code, bytes(synced.assignment)) == (0, each.given)
    assert each.classic.heartbeat(joined.member_id, joined.generation_id, instance_id="one") == 0
    refused = each.new.consumer_join("B", [each.topic], instance_id="one")
    assert refused.error == (GROUP_NOT_FOUND if policy == "downgrade" else NONE)


@pytest.mark.parametrize(("policy", "error"), [("downgrade", REBALANCE_IN_PROGRESS), ("upgrade", NONE)])
def test_the_policy_says_what_becomes_of_a_group_whose_last_new_member_leaves(
    groups: Callable[[str], Groups], policy: str, error: int
) -> None:
    each = groups(policy)
    each.new.consumer_join("A", [each.topic])
    time.sleep(INTERVAL_SECONDS)
    joined = each.classic.enter(protocols=each.protocols)
    assert joined.generation_id == 3
    each.new.consumer_heartbeat("A", -1)
    assert each.classic.sync(joined.member_id, 3).error_code == error
    assert each.shown()[0] == ("classic" if policy == "downgrade" else "consumer")
