"""CreateTopics, DeleteTopics, CreatePartitions. tests/conformance/test_topics.py compares the errors with Kafka."""

from random import Random
from uuid import UUID, uuid4

import pytest
from tests.unit.controller.controller_harness import ControllerHarness

from ottla.base.errors import Error
from ottla.controller import tree
from ottla.controller.decisions.topic_changes import NewPartitions, NewTopic, TopicDefaults, decide_create_topics
from ottla.controller.stores.store import DeleteNode, SetNode


def test_a_created_topic_is_in_the_image_and_in_the_tree() -> None:
    stand = ControllerHarness()
    (result,) = stand.create(NewTopic("a", 3, 1, configs=(("retention.ms", "5"),)))
    assert (result.error, result.message) == (Error.NONE, None)
    topic = stand.image.topics["a"]
    assert topic is result.topic
    assert [(p.leader, p.leader_epoch, p.isr, p.replicas, p.partition_epoch) for p in topic.partitions] == [
        (1, 0, (1,), (1,), 0)
    ] * 3
    assert stand.image.topic_configs["a"] == {"retention.ms": "5"}
    assert set(stand.tree.subtree("/brokers/topics")) == {
        "/brokers/topics",
        "/brokers/topics/a",
        "/brokers/topics/a/partitions",
        *(f"/brokers/topics/a/partitions/{n}" for n in range(3)),
        *(f"/brokers/topics/a/partitions/{n}/state" for n in range(3)),
    }


def test_equal_partitions_share_one_object() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 100, 1))
    assert len({id(partition) for partition in stand.image.topics["a"].partitions}) == 1


def test_defaults_stand_in_for_minus_one() -> None:
    stand = ControllerHarness(brokers=3, defaults=TopicDefaults(4, 2))
    (result,) = stand.create(NewTopic("a"))
    assert result.topic is not None
    assert [len(partition.replicas) for partition in result.topic.partitions] == [2, 2, 2, 2]


def test_refused_topics_do_not_stop_the_others() -> None:
    stand = ControllerHarness()
    results = stand.create(NewTopic("..", 1, 1), NewTopic("a", 0, 1), NewTopic("b", 1, 1), NewTopic("c", 1, 2))
    assert [result.error for result in results] == [
        Error.INVALID_TOPIC_EXCEPTION,
        Error.INVALID_PARTITIONS,
        Error.NONE,
        Error.INVALID_REPLICATION_FACTOR,
    ]
    assert set(stand.image.topics) == {"b"}


def test_first_of_several_errors_is_that_of_kafka() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a.b", 1, 1))
    bad_config = (("bad", "1"),)
    assert stand.refusal(NewTopic("a.b", 0, 0, configs=bad_config))[0] is Error.TOPIC_ALREADY_EXISTS
    assert stand.refusal(NewTopic("a_b", 0, 0, configs=bad_config))[0] is Error.INVALID_TOPIC_EXCEPTION
    assert stand.refusal(NewTopic("c", 0, 0, configs=bad_config))[0] is Error.INVALID_CONFIG
    assert stand.refusal(NewTopic("c", 0, 0))[0] is Error.INVALID_REPLICATION_FACTOR
    assert stand.refusal(NewTopic("c", 0, 1))[0] is Error.INVALID_PARTITIONS
    assert stand.refusal(NewTopic("c", 1, 1, configs=(("x", None),)))[0] is Error.INVALID_CONFIG


def test_a_name_without_dots_collides_with_nothing() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a-b", 1, 1), NewTopic("a.b", 1, 1))
    assert stand.refusal(NewTopic("a_b", 1, 1)) == (
        Error.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topic: a.b",
    )
    stand.delete(("a.b", None))
    assert stand.create(NewTopic("a_b", 1, 1))[0].error is Error.NONE


def test_a_manual_assignment_is_taken_in_the_order_of_its_numbers() -> None:
    stand = ControllerHarness(brokers=3)
    (result,) = stand.create(NewTopic("a", assignments=((1, (2, 3)), (0, (3, 1)))))
    assert result.topic is not None
    assert [partition.replicas for partition in result.topic.partitions] == [(3, 1), (2, 3)]
    assert [partition.leader for partition in result.topic.partitions] == [3, 2]


def test_manual_assignments_must_agree_in_size() -> None:
    error, message = ControllerHarness(brokers=2).refusal(NewTopic("a", assignments=((0, (1, 2)), (1, (1,)))))
    assert error is Error.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "not consistent with previous partitions" in message


def test_a_request_over_the_limit_is_refused_as_a_whole() -> None:
    stand = ControllerHarness()
    results = stand.create(NewTopic("a", 10_000, 1), NewTopic("b", 1, 1))
    assert {result.error for result in results} == {Error.POLICY_VIOLATION}
    assert stand.image.topics == {}


def test_a_decision_changes_nothing_by_itself() -> None:
    stand = ControllerHarness()
    before = dict(stand.tree.subtree("/"))
    decision = decide_create_topics(stand.image, [NewTopic("a", 1, 1)], TopicDefaults(), [stand.lot()], lambda _: None)
    assert decision.operations
    assert "a" in decision.image.topics
    assert stand.image.topics == {}
    assert stand.tree.subtree("/") == before


# ---- deleting


def test_a_deleted_topic_leaves_no_node_behind() -> None:
    stand = ControllerHarness()
    before = set(stand.tree.subtree("/"))
    stand.create(NewTopic("a", 3, 1, configs=(("x", "1"),)), NewTopic("a-b", 1, 1))
    topic_id = stand.image.topics["a"].topic_id
    first, second = stand.delete(("a", None), ("a-b", None))
    assert (first.name, first.error, first.topic_id) == ("a", Error.NONE, topic_id)
    assert (second.name, second.error) == ("a-b", Error.NONE)
    assert set(stand.tree.subtree("/")) == before


def test_deletion_by_id_and_of_the_unknown() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 1, 1))
    topic_id, unknown = stand.image.topics["a"].topic_id, uuid4()
    results = stand.delete((None, topic_id), (None, unknown), ("b", None))
    assert [(result.name, result.error, result.topic_id) for result in results] == [
        ("a", Error.NONE, topic_id),
        (None, Error.UNKNOWN_TOPIC_ID, unknown),
        ("b", Error.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]
    assert stand.image.topics == {}


def test_a_topic_named_and_given_by_id_is_deleted_once() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 1, 1))
    results = stand.delete(("a", None), (None, stand.image.topics["a"].topic_id))
    assert [result.error for result in results] == [Error.NONE, Error.NONE]


def test_deletion_can_be_switched_off() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 1, 1))
    (result,) = stand.delete(("a", None), is_enabled=False)
    assert result.error is Error.TOPIC_DELETION_DISABLED
    assert "a" in stand.image.topics


# ---- growing


def test_a_topic_grows_and_keeps_what_it_has() -> None:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("a", 2, 2))
    before = stand.image.topics["a"]
    stand.grow(NewPartitions("a", 5))
    after = stand.image.topics["a"]
    assert after.topic_id == before.topic_id
    assert after.partitions[:2] == before.partitions
    assert [len(partition.replicas) for partition in after.partitions] == [2] * 5


def test_growth_by_hand_must_have_the_topics_replication_factor() -> None:
    stand = ControllerHarness(brokers=2)
    stand.create(NewTopic("a", 1, 2))
    (result,) = stand.grow(NewPartitions("a", 2, ((1,),)))
    assert result.error is Error.INVALID_REPLICA_ASSIGNMENT
    (result,) = stand.grow(NewPartitions("a", 2, ((2, 1),)))
    assert result.error is Error.NONE
    assert stand.image.topics["a"].partitions[1].leader == 2


def test_growth_over_the_limit_is_against_the_policy() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 1, 1))
    (result,) = stand.grow(NewPartitions("a", 2**31 - 1))
    assert result.error is Error.POLICY_VIOLATION


# ---- starting


def test_the_first_start_makes_the_tree() -> None:
    stand = ControllerHarness()
    nodes = stand.tree.subtree("/")
    assert set(tree.SKELETON) <= set(nodes)
    assert nodes["/controller_epoch"].data == b"1"
    assert tree.decode_controller(nodes["/controller"].data) == 1
    assert stand.image.cluster_id == "cluster"


def test_every_start_has_a_controller_epoch_of_its_own() -> None:
    stand = ControllerHarness()
    restart(stand)
    assert stand.image.controller_epoch == 2
    assert stand.tree.subtree("/")["/controller_epoch"].data == b"2"


def test_a_restart_begins_a_new_leader_epoch_in_every_partition() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 2, 1))
    assert restart(stand) == 2
    partition = stand.image.topics["a"].partitions[1]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)


def test_a_partition_that_lost_its_leader_gets_one_again() -> None:
    stand = ControllerHarness()
    stand.create(NewTopic("a", 1, 1))
    path = tree.partition_state_path("a", 0)
    gone = tree.encode_partition_state(tree.PartitionState(-1, 3, (1,), 1))
    stand.tree.multi([SetNode(path, gone)])
    assert restart(stand) == 1
    assert stand.image.topics["a"].partitions[0].leader_epoch == 4


def test_a_partition_without_a_state_gets_one() -> None:
    """A controller that dies between the creation of the topic node and its states leaves such a tree."""
    stand = ControllerHarness()
    stand.create(NewTopic("a", 2, 1))
    stand.tree.multi([DeleteNode("/brokers/topics/a/partitions/1/state"), DeleteNode("/brokers/topics/a/partitions/1")])
    assert restart(stand) == 2
    partition = stand.image.topics["a"].partitions[1]
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1,))


def test_replicas_on_other_brokers_do_not_change() -> None:
    stand = ControllerHarness(brokers=2)
    stand.create(NewTopic("a", assignments=((0, (2,)),)))
    assert restart(stand) == 0
    assert stand.image.topics["a"].partitions[0].leader == 2


def restart(stand: ControllerHarness) -> int:
    stand.tree.multi([DeleteNode("/brokers/ids/1"), DeleteNode("/controller")])
    return stand.start(1)


# ---- everything at random


@pytest.mark.parametrize("seed", range(15))
def test_restart_always_loads_the_decided_image(seed: int) -> None:
    """The harness checks every step: the image of a decision equals the one loaded from the tree."""
    random = Random(seed)
    stand = ControllerHarness(brokers=random.randint(1, 4), defaults=TopicDefaults(random.randint(1, 3), 1))
    names = ["a", "b", "a.b", "a_b", "a-b", "c0", ".."]
    for _ in range(40):
        chosen = random.sample(names, random.randint(1, 3))
        action = random.choice(["create", "create", "delete", "grow", "restart"])
        if action == "create":
            stand.create(*(NewTopic(n, random.randint(-2, 4), random.randint(-1, 4)) for n in chosen))
        elif action == "delete":
            stand.delete(*((name, None) for name in chosen))
        elif action == "grow":
            stand.grow(*(NewPartitions(name, random.randint(0, 8)) for name in chosen))
        else:
            brokers = stand.image.brokers
            restart(stand)
            stand.image = stand.image.with_brokers(brokers)
        assert_invariants(stand)


def assert_invariants(stand: ControllerHarness) -> None:
    for topic in stand.image.topics.values():
        assert stand.image.topics_by_id[topic.topic_id] is topic
        assert topic.topic_id != UUID(int=0)
        for partition in topic.partitions:
            assert set(partition.isr) <= set(partition.replicas)
            assert partition.leader in partition.isr
            assert len(set(partition.replicas)) == len(partition.replicas)
