"""Damaged nodes of the store: they affect nothing else, and take effect again when they are restored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from tests import virtual_time
from tests.unit.controller.controller_harness import ControllerHarness, broker
from tests.unit.controller.test_membership import Member, Scene

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster.deltas import Place, apply_deltas, difference
from ottla.controller.cluster.membership import highest_known_epoch
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
)
from ottla.controller.decisions.elect_leaders import ElectionType, decide_elections
from ottla.controller.decisions.features import FeatureUpdate, decide_feature_updates
from ottla.controller.decisions.isr_changes import IsrChange, decide_alter_partitions
from ottla.controller.decisions.leader_election import decide_election
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.ottla_version import LEVEL_MAX
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from ottla.controller.decisions.topic_changes import NewPartitions, NewTopic
from ottla.controller.image import DAMAGED_EPOCH, NO_LEADER, MetadataImage, PartitionImage
from ottla.controller.image_loader import RETAIN_ALL_CONFIGS, load_image_leniently, restore_partition
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode
from ottla.protocol.messages.inter_broker import ClusterPollRequest

STATE = "/brokers/topics/a/partitions/0/state"
GARBAGE = (
    b"{garbage",
    b"",
    b"[]",
    b"\xff\xfe",
    b'{"leader":"x","leader_epoch":0,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":99999999999,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":Infinity,"isr":[1],"controller_epoch":1}',
    b'{"leader":1,"leader_epoch":0,"isr":7,"controller_epoch":1}',
    b"[" * 100_000,
)


def two_topics(stand: ControllerHarness) -> dict[str, Node]:
    """ "a" with two partitions, led by broker 1, and "b"."""
    assignments = ((0, (1, 2)), (1, (1, 2)))
    stand.create(NewTopic("a", assignments=assignments, configs=(("retention.ms", "77"),)), NewTopic("b"))
    return dict(stand.tree.subtree("/"))


# ---- reading


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_a_damaged_state_belongs_to_its_partition(data: bytes) -> None:
    nodes = two_topics(ControllerHarness(brokers=2))
    known = load_image_leniently(nodes, MetadataImage())
    damaged = {**nodes, STATE: nodes[STATE]._replace(data=data, version=7)}
    image = load_image_leniently(damaged, MetadataImage())
    assert image.damaged == {STATE}
    assert image.partition("a", 0) == PartitionImage(NO_LEADER, -1, (), (1, 2), DAMAGED_EPOCH)
    assert image.partition("a", 1) == known.partition("a", 1)
    assert image.topics["b"] == known.topics["b"]
    before = known.partition("a", 0)
    assert before is not None
    assert load_image_leniently(damaged, known).partition("a", 0) == before._replace(partition_epoch=DAMAGED_EPOCH)


@pytest.mark.parametrize(
    "data", [b"{garbage", b'{"partitions":{}}', b'{"partitions":{"0":[]}}', b'{"partitions":{"1":[1]}}']
)
def test_damaged_topic_keeps_its_last_known_state_if_there_is_one(data: bytes) -> None:
    nodes = two_topics(ControllerHarness(brokers=2))
    known = load_image_leniently(nodes, MetadataImage())
    damaged = {**nodes, "/brokers/topics/a": nodes["/brokers/topics/a"]._replace(data=data)}
    fresh = load_image_leniently(damaged, MetadataImage())
    assert (set(fresh.topics), fresh.damaged) == ({"b"}, {"/brokers/topics/a"})
    assert load_image_leniently(damaged, known).topics == known.topics


def test_damaged_settings_are_as_they_were_known_and_delete_nothing_if_they_were_not() -> None:
    nodes = two_topics(ControllerHarness(brokers=2))
    nodes["/config/brokers/<default>"] = Node(tree.encode_config({"log.retention.ms": "5"}), 0, 1)
    known = load_image_leniently(nodes, MetadataImage())
    paths = ("/config/topics/a", "/config/brokers/<default>")
    damaged = nodes | {path: nodes[path]._replace(data=b"{garbage") for path in paths}
    image = load_image_leniently(damaged, known)
    assert (image.topic_configs["a"], image.broker_configs[""]) == ({"retention.ms": "77"}, {"log.retention.ms": "5"})
    assert image.damaged == set(paths)
    fresh = load_image_leniently(damaged, MetadataImage())
    assert (fresh.topic_configs["a"], fresh.broker_configs[""]) == (
        RETAIN_ALL_CONFIGS["topics"],
        RETAIN_ALL_CONFIGS["brokers"],
    )


def test_a_damaged_registration_counts_while_it_is_the_one_that_is_known() -> None:
    nodes = {f"/brokers/ids/{n}": Node(tree.encode_broker(broker(n), 1), 0, n) for n in (1, 2, 3)}
    known = load_image_leniently(nodes, MetadataImage())
    nodes["/brokers/ids/2"] = Node(b"{garbage", 1, 2)
    nodes["/brokers/ids/3"] = Node(b"{garbage", 0, 33)  # another life
    nodes["/brokers/ids/no number"] = Node(b"{}", 0, 34)
    image = load_image_leniently(nodes, known)
    assert list(image.brokers) == [1, 2]
    assert image.damaged == {"/brokers/ids/2", "/brokers/ids/3", "/brokers/ids/no number"}


# ---- deciding


def damaged_stand() -> ControllerHarness:
    """Broker 1 leads both partitions of "a"; the state of the first, the settings and the features are damaged."""
    stand = ControllerHarness(brokers=3)
    two_topics(stand)
    (partition, other) = stand.image.topics["a"].partitions
    topic = stand.image.topics["a"]._replace(partitions=(partition._replace(partition_epoch=DAMAGED_EPOCH), other))
    stand.image = stand.image.with_topics([topic]).with_damaged({STATE, "/config/topics/a", tree.FEATURE})
    return stand


def test_damaged_partition_is_not_written_and_keeps_its_live_leader() -> None:
    image = damaged_stand().image
    assert not decide_election(image, BrokerAvailability(), ElectionRules()).operations
    gone = image.with_brokers({number: each for number, each in image.brokers.items() if number != 1})
    decision = decide_election(gone, BrokerAvailability(), ElectionRules())
    assert [operation.path for operation in decision.operations] == ["/brokers/topics/a/partitions/1/state"]
    assert [each.leader for each in decision.image.topics["a"].partitions] == [NO_LEADER, 2]
    assert decision.image.topics["a"].partitions[0].is_damaged


def test_change_of_a_damaged_node_is_refused_with_its_path() -> None:
    stand = damaged_stand()
    image, liveness, name = stand.image, BrokerAvailability(), TopicPartition("a", 0)
    (move,) = decide_reassignments(image, [ReassignmentRequest(name, (2, 3))], liveness, ElectionRules()).reply
    assert (move.error, STATE in (move.message or "")) == (Error.KAFKA_STORAGE_ERROR, True)
    change = ConfigResourceChange(
        ConfigResourceType.TOPIC, "a", (ConfigOperation(OperationType.SET, "retention.ms", "1"),)
    )
    (altered,) = decide_config_changes(image, [change], BrokerSettings({})).reply
    assert (altered.error, "/config/topics/a" in (altered.message or "")) == (Error.KAFKA_STORAGE_ERROR, True)
    with pytest.raises(KafkaError, match="/feature"):
        decide_feature_updates(image, [FeatureUpdate("group.version", 0, 2)], {"group.version": (0, 1)})
    proposal = IsrChange(image.topics["a"].topic_id, 0, 0, 5, ((1, -1),))
    (answer,) = decide_alter_partitions(image, 1, 0, [proposal], liveness, ElectionRules()).reply
    assert answer.error is Error.INVALID_UPDATE_VERSION
    alone = image.with_brokers({2: image.brokers[2]})
    for kind, error in (
        (ElectionType.PREFERRED, Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.UNCLEAN, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        (election,) = decide_elections(alone, kind, [name], liveness, ElectionRules(1, True)).reply
        assert election.error is error
    stand.image = image.with_damaged({"/brokers/topics/a", "/brokers/topics/unknown"})
    (grown,) = stand.grow(NewPartitions("a", 3))
    assert grown.error is Error.KAFKA_STORAGE_ERROR
    assert stand.refusal(NewTopic("unknown"))[0] is Error.TOPIC_ALREADY_EXISTS


def test_a_topic_with_a_damaged_state_can_be_deleted() -> None:
    stand = damaged_stand()
    (result,) = stand.delete(("a", None))
    assert result.error is Error.NONE
    assert stand.tree.get("/brokers/topics/a") is None


def test_a_restored_partition_gets_a_new_epoch_unless_its_leader_never_changed() -> None:
    lives = {1: broker(1)._replace(epoch=10), 2: broker(2)._replace(epoch=20)}
    known = PartitionImage(1, 4, (1, 2), (1, 2), DAMAGED_EPOCH)
    restored = PartitionImage(1, 4, (1, 2), (1, 2), 9)
    assert restore_partition(known, restored, 21, lives) == restored
    older = restored._replace(leader_epoch=2)  # from a backup: epochs above are in the logs
    assert restore_partition(known, older, 21, lives) == restored._replace(leader=NO_LEADER)
    assert restore_partition(known._replace(leader=NO_LEADER), restored, 21, lives).leader == NO_LEADER
    reborn = restore_partition(
        known, restored, 15, lives
    )  # broker 2 has begun another life since, and may lack records
    assert (reborn.leader, reborn.isr, reborn.last_known_elr) == (NO_LEADER, (1,), (2,))


def test_deltas_contain_the_damaged_nodes() -> None:
    old = damaged_stand().image
    new = old.with_damaged({"/brokers/topics/x"})
    after, _ = apply_deltas(old, Place(1, 0), 1, [difference(old, new, 1)])
    assert after.damaged == {"/brokers/topics/x"}
    assert difference(new, new.with_cluster_id("other"), 2).damaged is None


# ---- a cluster


class Follower:
    """The poll loop of a broker: it polls the controller and keeps its session."""

    def __init__(self, scene: Scene, member: Member) -> None:
        self._scene = scene
        self._member = member
        self._place = Place()

    async def run(self) -> None:
        member = self._member
        while True:
            await asyncio.sleep(0.5)
            if member.store.is_away:
                return
            await member.store.get("/")
            controller = next((each for each in self._scene.members if each.membership.is_controller), None)
            if controller is None or controller is member:
                self._place = Place()
                continue
            request = ClusterPollRequest(
                broker_id=member.membership.node_id,
                broker_epoch=member.membership.broker_epoch,
                controller_epoch=self._place.epoch,
                sequence=self._place.sequence,
                level_max=LEVEL_MAX,
            )
            answer = await controller.membership.poll(request)
            if answer.error_code == Error.NONE:
                image, self._place = apply_deltas(member.image, self._place, answer.controller_epoch, answer.deltas)
                member.membership.publish_image(image)


async def start(scene: Story, number: int) -> Member:
    member = await scene.start(number)
    scene.tasks.append(asyncio.ensure_future(Follower(scene, member).run()))
    return member


class Story(Scene):
    def __init__(self) -> None:
        super().__init__()
        self.clock = virtual_time.LoopClock()  # type: ignore[assignment]
        self.tasks: list[asyncio.Future[None]] = []

    @property
    def controller(self) -> Member | None:
        return next((each for each in self.members if each.membership.is_controller), None)

    def write(self, path: str, data: bytes) -> None:
        self.ensemble.multi([SetNode(path, data)])

    async def close(self) -> None:
        for task in self.tasks:
            if task.done():
                task.result()
            task.cancel()
        await super().close()


def run(play: Callable[[Story], Awaitable[None]]) -> None:
    async def whole() -> None:
        story = Story()
        async with asyncio.timeout(300):
            try:
                await play(story)
            finally:
                await story.close()

    virtual_time.run(whole())


async def wait(is_so: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.05)


async def three(story: Story) -> tuple[Member, Member, Member]:
    """Broker 1 is the controller; "a" has its partitions on (2, 3) and (3, 2), "b" on (1, 2)."""
    one, two, other = await start(story, 1), await start(story, 2), await start(story, 3)
    await wait(lambda: len(one.image.brokers) == 3)
    topics = [NewTopic("a", assignments=((0, (2, 3)), (1, (3, 2)))), NewTopic("b", assignments=((0, (1, 2)),))]
    await one.controller.create_topics(topics)
    await wait(lambda: "b" in two.image.topics and "b" in other.image.topics)
    return one, two, other


def leaders(member: Member, topic: str) -> list[int]:
    return [each.leader for each in member.image.topics[topic].partitions]


def test_damaged_state_affects_nothing_else_and_is_loaded_when_it_is_restored(caplog: pytest.LogCaptureFixture) -> None:
    async def play(story: Story) -> None:
        one, two, three_ = await three(story)
        stored = story.node(STATE)
        assert stored is not None
        story.write(STATE, b"{garbage")
        await wait(lambda: STATE in two.image.damaged and STATE in three_.image.damaged)
        assert leaders(two, "a") == [2, 3], "the leader is alive and stays"
        story.kill(one, 1)
        one.store.die()
        await wait(lambda: story.controller)
        new = story.controller
        assert new is not None
        await wait(lambda: leaders(new, "b") == [2])
        assert leaders(new, "a") == [2, 3], "as it was last known"
        (made,) = await new.controller.create_topics([NewTopic("c", 2, 2)])
        assert made.error is Error.NONE
        assert story.node(STATE) == b"{garbage"
        story.write(STATE, stored)
        await wait(lambda: not new.image.damaged)
        assert (leaders(new, "a"), new.image.topics["a"].partitions[0].is_damaged) == ([2, 3], False)
        assert story.node(STATE) == stored, "nothing happened meanwhile: the same leader, the same epoch"

    with caplog.at_level(logging.WARNING, "ottla"):
        run(play)
    complaints = [record.getMessage() for record in caplog.records if STATE in record.getMessage()]
    assert len(complaints) == 2, "one line for each controller"


def test_a_leader_that_dies_while_its_state_is_damaged_has_a_successor_when_it_is_restored() -> None:
    async def play(story: Story) -> None:
        one, two, _ = await three(story)
        stored = story.node(STATE)
        assert stored is not None
        story.write(STATE, b"{garbage")
        await wait(lambda: one.image.damaged)
        story.kill(two, 2)
        two.store.die()
        await wait(lambda: leaders(one, "a") == [NO_LEADER, 3])
        story.write(STATE, stored)
        await wait(lambda: leaders(one, "a") == [3, 3])
        assert one.image.topics["a"].partitions[0].leader_epoch == 1

    run(play)


def test_a_cluster_that_starts_with_damaged_nodes_serves_all_the_others() -> None:
    async def play(story: Story) -> None:
        await three(story)
        paths = (STATE, "/brokers/topics/b", "/config/topics/a")
        stored = {path: story.node(path) or b"" for path in paths}
        for member in list(story.members):
            story.members.remove(member)
            await member.membership.close()
        for path in paths:
            story.write(path, b"{garbage")
        again, *_ = [await start(story, number) for number in (1, 2, 3)]
        await wait(lambda: len(again.image.brokers) == 3)
        await wait(lambda: leaders(again, "a")[1] in (2, 3))
        assert leaders(again, "a")[0] == NO_LEADER
        assert again.image.damaged == {*paths}
        assert "b" not in again.image.topics
        assert again.image.topic_configs["a"] == RETAIN_ALL_CONFIGS["topics"]
        (refused,) = await again.controller.create_topics([NewTopic("b", 1, 1)])
        assert refused.error is Error.TOPIC_ALREADY_EXISTS
        for path, data in stored.items():
            assert story.node(path) == b"{garbage"
            story.write(path, data)
        await wait(lambda: not again.image.damaged)
        await wait(lambda: NO_LEADER not in leaders(again, "a") + leaders(again, "b"))
        assert again.image.topic_configs["a"] == {}
        assert again.image.topics["a"].partitions[0].leader_epoch > 0
        (before,) = leaders(again, "b")
        story.write("/brokers/topics/b", b"{garbage")
        await wait(lambda: again.image.damaged)
        assert leaders(again, "b") == [before], "what is known stays"

    run(play)


def test_deleted_damaged_topic_is_not_damaged_any_more() -> None:
    async def play(story: Story) -> None:
        story.ensemble.tree.multi([CreateNode(path) for path in ("/brokers", "/brokers/topics", "/brokers/topics/x")])
        one = await start(story, 1)
        await wait(lambda: one.image.damaged == {"/brokers/topics/x"})
        story.ensemble.multi([DeleteNode("/brokers/topics/x")])
        await wait(lambda: not one.image.damaged)
        (made,) = await one.controller.create_topics([NewTopic("x", 1, 1)])
        assert made.error is Error.NONE

    run(play)


def test_damaged_settings_keep_their_last_known_values_until_they_are_restored() -> None:
    async def play(story: Story) -> None:
        one = await start(story, 1)
        await one.controller.create_topics([NewTopic("a", 1, 1, configs=(("retention.ms", "77"),))])
        story.write("/config/topics/a", b"{garbage")
        story.ensemble.multi(
            [
                CreateNode("/config/changes/config_change_1", b"{garbage"),
                CreateNode("/config/changes/config_change_2", tree.encode_config_change("topics", "a")),
            ]
        )
        await wait(lambda: one.image.damaged)
        assert one.image.topic_configs["a"] == {"retention.ms": "77"}
        story.write("/config/topics/a", tree.encode_config({"retention.ms": "78"}))
        await wait(lambda: one.image.topic_configs["a"] == {"retention.ms": "78"})
        assert not one.image.damaged

    run(play)


def test_broker_restores_its_own_damaged_registration_and_is_not_fenced_before() -> None:
    async def play(story: Story) -> None:
        one, two, _ = await three(story)
        epoch = two.membership.broker_epoch
        story.write("/brokers/ids/2", b"{garbage")
        one.membership.watches.enqueue("brokers")
        await wait(lambda: story.node("/brokers/ids/2") != b"{garbage")
        await asyncio.sleep(10)
        assert one.image.brokers[2].epoch == two.membership.broker_epoch == epoch
        assert not one.image.damaged
        assert leaders(one, "a") == [2, 3]

    run(play)


def test_a_start_waits_for_the_session_behind_a_damaged_registration_of_the_same_id() -> None:
    async def play(story: Story) -> None:
        await start(story, 1)
        story.ensemble.multi([CreateNode("/brokers/ids/2", b"{garbage")])
        asyncio.get_running_loop().call_later(4, story.ensemble.multi, [DeleteNode("/brokers/ids/2")])
        two = await start(story, 2)
        assert story.node("/brokers/ids/2") != b"{garbage"
        assert two.membership.broker_epoch > 0

    run(play)


def test_producer_ids_are_not_given_from_a_block_that_cannot_be_read() -> None:
    async def play(story: Story) -> None:
        one = await start(story, 1)
        story.ensemble.multi([CreateNode(tree.PRODUCER_ID_BLOCK, b"{garbage")])
        with pytest.raises(KafkaError, match=tree.PRODUCER_ID_BLOCK) as refusal:
            await one.controller.allocate_producer_ids()
        assert refusal.value.error is Error.KAFKA_STORAGE_ERROR
        assert story.node(tree.PRODUCER_ID_BLOCK) == b"{garbage"

    run(play)


def test_an_empty_block_of_producer_ids_is_none_as_kafka_3_9_makes_it_at_its_start() -> None:
    async def play(story: Story) -> None:
        one = await start(story, 1)
        story.ensemble.multi([CreateNode(tree.PRODUCER_ID_BLOCK, b"")])
        assert (await one.controller.allocate_producer_ids()).start == 0
        assert (await one.controller.allocate_producer_ids()).start == 1000

    run(play)


# ---- the controller's own nodes


def is_alive(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()


def test_damaged_controller_node_is_deleted_after_a_session_and_a_controller_is_elected() -> None:
    async def play(story: Story) -> None:
        one, two, _ = await three(story)
        story.write("/controller", b"{garbage")
        await asyncio.sleep(4)
        assert story.node("/controller") == b"{garbage", "it may be restored in the grace period"
        assert one.membership.is_controller
        (made,) = await one.controller.create_topics([NewTopic("c", 1, 1)])
        assert made.error is Error.NONE
        newcomer = asyncio.ensure_future(start(story, 4))
        await wait(lambda: story.node("/controller_epoch") == b"2")
        assert sum(member.membership.is_controller for member in story.members) == 1
        await newcomer
        await wait(lambda: story.controller is not None and len(story.controller.image.brokers) == 4)
        assert all(is_alive(member.membership._ticker) for member in (one, two))

    run(play)


def test_a_controller_node_that_is_mended_in_time_stays() -> None:
    async def play(story: Story) -> None:
        await three(story)
        stored = story.node("/controller") or b""
        story.write("/controller", b"{garbage")
        await asyncio.sleep(4)
        story.write("/controller", stored)
        await asyncio.sleep(20)
        assert (story.node("/controller"), story.node("/controller_epoch")) == (stored, b"1")

    run(play)


def test_isolated_controller_resigns_despite_a_damaged_node() -> None:
    async def play(story: Story) -> None:
        one = await scene_without_polls(story)
        await wait(lambda: not one.membership.is_controller)
        assert is_alive(one.membership._ticker)
        await wait(lambda: (story.node("/controller") or b"{garbage") != b"{garbage", 60)

    run(play)


async def scene_without_polls(story: Story) -> Member:
    one = await story.start(1)
    story.tasks.append(asyncio.ensure_future(Follower(story, one).run()))
    await story.start(2)
    await story.start(3)
    await wait(lambda: len(one.image.brokers) == 3)
    await asyncio.sleep(5)
    story.write("/controller", b"{garbage")
    return one


def test_a_controller_that_stops_removes_its_damaged_node() -> None:
    async def play(story: Story) -> None:
        one, *_ = await three(story)
        story.write("/controller", b"{garbage")
        await one.membership.resign_before_shutdown()
        await wait(lambda: story.controller not in (None, one), 3)

    run(play)


def test_a_damaged_epoch_is_followed_by_one_above_all_that_are_known() -> None:
    async def play(story: Story) -> None:
        one, *_ = await three(story)
        story.write("/controller_epoch", b"garbage")
        story.write(STATE, tree.encode_partition_state(tree.PartitionState(2, 0, (2, 3), 41)))
        story.ensemble.multi([DeleteNode("/controller")])
        await wait(lambda: story.node("/controller_epoch") == b"42")
        await wait(lambda: story.controller is not None and story.controller.image.controller_epoch == 42)
        assert is_alive(one.membership._ticker)

    run(play)


def test_a_damaged_epoch_is_counted_by_its_version() -> None:
    assert highest_known_epoch(Node(b"garbage", 7, 1), {}, 3) == 8
    assert highest_known_epoch(Node(b"garbage", 7, 1), {STATE: Node(b"{", 0, 1)}, 11) == 11
