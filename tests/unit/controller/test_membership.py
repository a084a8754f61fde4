"""Membership: registration, election, failure detection. Sessions and nodes without ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests import virtual_time
from tests.unit.controller.controller_harness import broker, check_configs
from tests.unit.controller.ensemble import Ensemble, MemberStore

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.cluster import membership as membership_module
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.membership import NOT_REGISTERED, ClusterMembership
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.ottla_version import LEVEL_MAX
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage
from ottla.controller.stores.store import CreateNode, DeleteNode, SetNode, StoreUnusableError
from ottla.protocol.messages.inter_broker import ClusterPollRequest, ClusterPollResponse, OfflineReplicas

SECONDS_MAX = 10.0
NODES_OF_T = [
    DeleteNode(f"/brokers/topics/t{rest}") for rest in ("/partitions/0/state", "/partitions/0", "/partitions", "")
]


class ManualClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Options:
    num_partitions = 1
    default_replication_factor = 1
    delete_topic_enable = True
    min_insync_replicas = 2
    unclean_leader_election_enable = False

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id

    @property
    def broker(self) -> Options:
        return self

    def with_image(self, image: MetadataImage) -> Options:
        changed = Options(self.node_id)
        changed.min_insync_replicas = int(image.broker_configs.get("", {}).get("min.insync.replicas", "2"))
        return changed


class Member:
    """One broker with only its membership."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.store = MemberStore(scene.ensemble, scene.clock)
        self.images = MetadataCache()
        options = Options(number)
        self.controller = ClusterController(
            self.store, scene.clock, options, check_configs, Random(number), self.images
        )
        self.membership = ClusterMembership(self.store, scene.clock, options, self.controller, self.images, scene.probe)
        self.lives: list[int] = []
        self.membership.on_registered = self.lives.append

    @property
    def image(self) -> MetadataImage:
        return self.images.image


class Scene:
    """A cluster; `answering` are the ports that accept connections."""

    def __init__(self) -> None:
        self.ensemble = Ensemble()
        self.clock = ManualClock()
        self.answering: set[int] = set()
        self.members: list[Member] = []

    async def probe(self, other: BrokerImage) -> bool:
        await asyncio.sleep(0)
        return next(iter(other.endpoints.values())).port in self.answering

    async def start(self, number: int, cluster_id: str | None = None, port: int | None = None) -> Member:
        member = Member(self, number)
        me = broker(number)
        if port is not None:
            me = me._replace(endpoints={"PLAINTEXT": Endpoint("127.0.0.1", port)})
        await member.membership.start(me, cluster_id)
        self.members.append(member)
        self.answering.add(port or 9000 + number)
        mine = member.membership
        await until(lambda: mine.controller_id >= 0 and (mine.ready.is_set() or not mine.is_controller))
        return member

    def kill(self, member: Member, number: int) -> None:
        """Kill the broker: its port refuses connections, but its session lasts for a while."""
        self.answering.discard(9000 + number)
        self.members.remove(member)
        member.store.is_away = True
        member.membership.is_leaving = True
        member.controller.resign()

    async def close(self) -> None:
        for member in self.members:
            await member.membership.close()

    def node(self, path: str) -> bytes | None:
        found = self.ensemble.tree.get(path)
        return found.data if found is not None else None


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():
            await asyncio.sleep(0.001)


def run(play: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        async with asyncio.timeout(SECONDS_MAX):
            try:
                await play(scene)
            finally:
                await scene.close()

    virtual_time.run(whole())


# ---- registration


def test_the_first_broker_makes_the_tree_registers_and_is_the_controller() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        assert one.membership.is_controller
        assert scene.node("/controller_epoch") == b"1"
        assert all(scene.ensemble.tree.get(path) is not None for path in tree.SKELETON)
        assert one.membership.broker_epoch == scene.ensemble.tree.get("/brokers/ids/1").created_id  # type: ignore[union-attr]
        assert one.image.brokers[1].epoch == one.membership.broker_epoch
        assert one.image.cluster_id
        assert one.lives == [one.membership.broker_epoch]

    run(play)


def test_others_follow_and_are_noticed() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        two = await scene.start(2)
        assert not two.membership.is_controller
        assert two.membership.controller_id == 1
        await until(lambda: set(one.image.brokers) == {1, 2})
        with pytest.raises(KafkaError) as caught:
            await two.controller.create_topics([NewTopic("t")])
        assert caught.value.error is Error.NOT_CONTROLLER

    run(play)


def test_broker_of_another_cluster_is_refused() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        with pytest.raises(StoreUnusableError, match="belongs to cluster"):
            await scene.start(2, cluster_id="another")
        await scene.start(3, cluster_id=one.image.cluster_id)

    run(play)


def test_log_directories_of_another_cluster_are_refused_with_an_empty_store() -> None:
    async def play(scene: Scene) -> None:
        with pytest.raises(StoreUnusableError, match="has no cluster id"):
            await scene.start(1, cluster_id="lost")

    run(play)


@pytest.mark.parametrize("is_back", [True, False])
def test_a_store_that_falls_silent_during_the_start_is_waited_for(is_back: bool) -> None:
    async def play() -> None:
        scene = Scene()
        scene.clock = virtual_time.LoopClock()  # type: ignore[assignment]
        member = Member(scene, 1)
        opened = member.store.open

        async def open_then_stall() -> None:
            await opened()
            member.store.is_away = True

        member.store.open = open_then_stall  # type: ignore[method-assign]
        loop = asyncio.get_running_loop()
        if is_back:
            loop.call_later(4, setattr, member.store, "is_away", False)
            await member.membership.start(broker(1), None, timeout_ms=5_000)
            await until(lambda: member.membership.is_controller)
            await member.membership.close()
            return
        began = loop.time()
        with pytest.raises(StoreUnusableError, match="no response"):
            await member.membership.start(broker(1), None, timeout_ms=5_000)
        assert 5 <= loop.time() - began < 6

    virtual_time.run(play())


def test_live_broker_whose_node_vanished_registers_again_with_its_previous_epoch() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        two = await scene.start(2)
        before = two.membership.broker_epoch
        await until(lambda: 2 in one.image.brokers)
        scene.ensemble.multi([DeleteNode("/brokers/ids/2")])
        await until(lambda: two.membership.broker_epoch > before)
        await until(lambda: 2 in one.image.brokers and one.image.brokers[2].epoch == two.membership.broker_epoch)
        assert one.image.brokers[2].previous_epoch == before
        assert two.lives == [before, two.membership.broker_epoch]

    run(play)


def test_a_restarted_broker_replaces_the_node_of_its_dead_predecessor() -> None:
    async def play(scene: Scene) -> None:
        scene.ensemble.multi([CreateNode(path) for path in tree.SKELETON])
        dead = broker(1)._replace(endpoints={"PLAINTEXT": Endpoint("127.0.0.1", 7777)})
        scene.ensemble.multi([CreateNode("/brokers/ids/1", tree.encode_broker(dead, 0), is_ephemeral=True)])
        one = await scene.start(1)
        assert b"9001" in (scene.node("/brokers/ids/1") or b"")
        assert one.membership.is_controller

    run(play)


def test_an_id_that_is_in_use_stops_the_start() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        scene.members[0].store.session_timeout_ms = 50
        second = Member(scene, 1)
        second.store.session_timeout_ms = -900  # so that the test need not wait for the session to end
        me = broker(1)._replace(endpoints={"PLAINTEXT": Endpoint("127.0.0.1", 9999)})
        with pytest.raises(StoreUnusableError, match=r"broker id 1 is already in use by 127\.0\.0\.1:9001"):
            await second.membership.start(me, None)
        assert b"9001" in (scene.node("/brokers/ids/1") or b"")
        assert one.membership.is_controller

    run(play)


def test_a_new_session_registers_again_and_follows_again() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        two = await scene.start(2)
        before = two.membership.broker_epoch
        two.store.expire()
        await until(lambda: two.membership.broker_epoch not in (NOT_REGISTERED, before))
        await until(lambda: two.membership.controller_id == 1)
        await until(lambda: one.image.brokers[2].epoch == two.membership.broker_epoch)

    run(play)


# ---- elections


def test_after_the_death_of_the_controller_another_one_is_elected_and_moves_its_leaders() -> None:
    async def play(scene: Scene) -> None:
        one, two, three = [await scene.start(number) for number in (1, 2, 3)]
        await until(lambda: set(one.image.brokers) == {1, 2, 3})
        (made,) = await one.controller.create_topics([NewTopic("t", assignments=((0, (1, 2, 3)),))])
        assert made.error is Error.NONE
        scene.kill(one, 1)
        one.store.die()
        await until(lambda: two.membership.is_controller or three.membership.is_controller)
        elected = two if two.membership.is_controller else three
        await until(elected.membership.ready.is_set)
        assert scene.node("/controller_epoch") == b"2"
        partition = elected.image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2, 3))
        other = three if elected is two else two
        await until(lambda: other.membership.controller_id == elected.membership.node_id)

    run(play)


def test_a_dead_controller_is_not_waited_for() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        scene.kill(one, 1)
        await two.membership.suspect_controller(1)
        await until(lambda: two.membership.is_controller)
        await until(lambda: set(two.image.brokers) == {2})  # its port refuses: its registration was removed
        assert scene.node("/brokers/ids/1") is None

    run(play)


def test_two_brokers_that_cannot_reach_each_other_do_not_depose_each_other_without_end() -> None:
    async def play(scene: Scene) -> None:
        await scene.start(1)
        two = await scene.start(2)
        scene.answering.clear()
        await two.membership.suspect_controller(1)
        await until(lambda: two.membership.is_controller)
        await two.membership.resign_before_shutdown()
        two.membership.is_candidate = True
        two.membership._work_queue.enqueue("controller")
        await until(lambda: scene.node("/controller") is not None)
        elected = tree.decode_controller(scene.node("/controller") or b"")
        if elected == 1:
            epoch = scene.node("/controller_epoch")
            await two.membership.suspect_controller(1)
            assert scene.node("/controller_epoch") == epoch, "the broker that was elected since is alive"

    run(play)


def test_responding_controller_is_not_replaced() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        await two.membership.suspect_controller(1)
        await asyncio.sleep(0.01)
        assert one.membership.is_controller
        assert scene.node("/controller_epoch") == b"1"

    run(play)


def test_controller_that_was_elected_in_between_is_not_removed() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        node = await two.store.get("/controller")
        epoch = await two.store.get("/controller_epoch")
        assert node is not None
        scene.ensemble.multi([SetNode("/controller_epoch", b"2")])
        assert not await two.membership._remove_controller(node, epoch)
        assert scene.node("/controller") is not None
        assert one.membership.node_id == 1

    run(play)


def test_controller_without_store_response_for_a_session_stops_and_is_a_candidate_later() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        one.store.is_away = True
        scene.clock.ms += 5999
        assert one.membership.is_controller
        scene.clock.ms += 1
        assert not one.membership.is_controller
        with pytest.raises(KafkaError) as caught:
            await one.controller.create_topics([NewTopic("t")])
        assert caught.value.error is Error.NOT_CONTROLLER
        assert "no response from ZooKeeper for 6 s" in one.membership.no_controller_message()
        await until(lambda: one.membership.controller_id == -1)
        one.store.come_back()
        await until(lambda: one.membership.is_controller)
        assert scene.node("/controller_epoch") == b"2", "a new time as the controller has a new epoch"

    run(play)


def test_a_deposed_controller_writes_nothing_and_follows() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        scene.ensemble.multi(
            [
                DeleteNode("/controller"),
                CreateNode("/controller", tree.encode_controller(2, 0), is_ephemeral=True),
                SetNode("/controller_epoch", b"2"),
            ]
        )
        with pytest.raises(KafkaError) as caught:
            await one.controller.create_topics([NewTopic("t")])
        assert caught.value.error is Error.NOT_CONTROLLER
        assert scene.node("/brokers/topics/t") is None
        await until(lambda: not one.membership.is_controller)
        assert two.membership.node_id == 2

    run(play)


def test_controller_that_shuts_down_lets_another_broker_be_elected() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        await one.membership.resign_before_shutdown()
        await until(lambda: two.membership.is_controller)
        await until(lambda: one.membership.controller_id == 2)
        assert scene.node("/brokers/ids/1") is not None

    run(play)


# ---- brokers that are registered and out of reach


async def pass_time(scene: Scene, is_so: Callable[[], object], polls: Callable[[], Awaitable[object]] | None) -> None:
    """Advance the clock by a quarter of a second for each check of the controller, until a condition is true."""
    while not is_so():
        scene.clock.ms += 250
        for member in scene.members:
            member.store.come_back()
        if polls is not None:
            await polls()
        await asyncio.sleep(0.003)


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "TICK_SECONDS", 0.001)


@pytest.mark.usefixtures("quick_ticks")
def test_a_broker_that_does_not_poll_loses_its_leaders_and_counts_again_when_it_does() -> None:
    async def play(scene: Scene) -> None:
        one, _, _ = [await scene.start(number) for number in (1, 2, 3)]
        await until(lambda: set(one.image.brokers) == {1, 2, 3})
        await asyncio.gather(
            one.controller.create_topics([NewTopic("t", assignments=((0, (2, 1, 3)),))]), see(one, scene)
        )
        await pass_time(scene, lambda: 2 not in one.image.brokers, lambda: poll(one, scene, 3))
        partition = one.image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 1, (1, 3))
        assert one.membership.is_controller
        await poll(one, scene, 2)
        await until(lambda: 2 in one.image.brokers)

    run(play)


@pytest.mark.usefixtures("quick_ticks")
def test_a_broker_that_dies_before_its_first_poll_is_missed_at_once() -> None:
    async def play(scene: Scene) -> None:
        one, _, three = [await scene.start(number) for number in (1, 2, 3)]
        await until(lambda: set(one.image.brokers) == {1, 2, 3})
        scene.kill(three, 3)
        before_ms = scene.clock.ms
        await pass_time(scene, lambda: 3 not in one.image.brokers, lambda: poll(one, scene, 2))
        assert scene.clock.ms - before_ms < 3000
        assert scene.node("/brokers/ids/3") is None

    run(play)


@pytest.mark.usefixtures("quick_ticks")
def test_isolated_controller_lets_another_broker_be_elected() -> None:
    async def play(scene: Scene) -> None:
        one, two, three = [await scene.start(number) for number in (1, 2, 3)]
        await until(lambda: set(one.image.brokers) == {1, 2, 3})
        await pass_time(scene, lambda: not one.membership.is_controller, None)
        await until(lambda: two.membership.is_controller or three.membership.is_controller)
        assert set(one.image.brokers) == {1, 2, 3}, "it has fenced no broker"
        assert scene.node("/controller_epoch") == b"2"

    run(play)


@pytest.mark.usefixtures("quick_ticks")
def test_isolated_controller_is_a_candidate_again_without_others() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        two = await scene.start(2)
        await until(lambda: set(one.image.brokers) == {1, 2})
        two.membership.is_candidate = False
        await pass_time(scene, lambda: not one.membership.is_controller, None)
        await pass_time(scene, lambda: one.membership.is_controller, None)
        assert scene.node("/controller_epoch") == b"2"

    run(play)


# ---- what brokers tell the controller


async def poll(member: Member, scene: Scene, number: int, **fields: object) -> ClusterPollResponse:
    epoch = scene.ensemble.tree.get(f"/brokers/ids/{number}")
    assert epoch is not None
    request = ClusterPollRequest(
        broker_id=number, broker_epoch=epoch.created_id, controller_epoch=-1, level_max=LEVEL_MAX
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return await member.membership.poll(request)


def test_dead_broker_is_removed_when_its_connection_is_lost() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        await until(lambda: 2 in one.image.brokers)
        one.membership.suspect_broker(2)
        await asyncio.sleep(0.1)
        assert scene.node("/brokers/ids/2") is not None, "it answers"
        await until(lambda: not one.membership._probing)
        scene.kill(two, 2)
        one.membership.suspect_broker(2)
        await until(lambda: 2 not in one.image.brokers)
        assert scene.node("/brokers/ids/2") is None

    run(play)


def test_polls_bring_the_image_to_brokers_that_are_registered_and_to_no_others() -> None:
    async def play(scene: Scene) -> None:
        one, two = await scene.start(1), await scene.start(2)
        answer = await poll(one, scene, 2)
        assert answer.error_code == Error.NONE
        assert answer.deltas[0].is_snapshot
        stale = await poll(one, scene, 2, broker_epoch=1)
        assert stale.error_code == Error.STALE_BROKER_EPOCH
        elsewhere = await poll(two, scene, 2)
        assert elsewhere.error_code == Error.NOT_CONTROLLER

    run(play)


def test_a_replica_in_a_failed_folder_gives_its_leadership_away() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        await scene.start(2)
        await until(lambda: 2 in one.image.brokers)
        await asyncio.gather(one.controller.create_topics([NewTopic("t", assignments=((0, (2, 1)),))]), see(one, scene))
        topic_id = one.image.topics["t"].topic_id
        await poll(one, scene, 2, offline=[OfflineReplicas(topic_id=topic_id, partitions=[0])])
        partition = one.image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, partition.isr) == (1, (1,))
        await poll(one, scene, 2, offline=[])
        assert one.controller.liveness.offline_replicas == {}

    run(play)


async def see(member: Member, scene: Scene) -> None:
    """Broker 2 acknowledges all changes at once."""
    answer = await poll(member, scene, 2)
    sequence = answer.deltas[-1].sequence
    answer = await poll(member, scene, 2, controller_epoch=answer.controller_epoch, sequence=sequence, max_wait_ms=2000)
    await poll(
        member, scene, 2, controller_epoch=answer.controller_epoch, sequence=answer.deltas[-1].sequence, max_wait_ms=1
    )


def test_a_lower_minimum_ends_eligibility_in_the_write_that_lowers_it() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        scene.ensemble.multi([CreateNode("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}')])
        await until(lambda: one.image.partition_leader("t", 0) == 1)
        state = tree.PartitionState(1, 0, (1,), 1, eligible=(2,))
        path = "/brokers/topics/t/partitions/0/state"
        scene.ensemble.multi([SetNode(path, tree.encode_partition_state(state))])
        note = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        scene.ensemble.multi([CreateNode("/isr_change_notification/isr_change_", note, is_sequential=True)])
        await until(lambda: (found := one.image.partition("t", 0)) is not None and found.elr == (2,))
        assert one.image.broker_configs[""] == {"min.insync.replicas": "2"}, "as the file of the first controller says"
        writes = scene.ensemble.transactions

        def lower(image: MetadataImage) -> Decision[None]:
            config = {"min.insync.replicas": "1"}
            written = SetNode("/config/brokers/<default>", tree.encode_config(config))
            return Decision((written,), image.with_broker_config("", config), None)

        await one.controller.change(lower)
        partition = one.image.partition("t", 0)
        assert partition is not None
        assert partition.elr == ()
        assert scene.ensemble.transactions == writes + 1

    run(play)


# ---- what others write into the store


def test_topics_marks_and_settings_of_other_tools_are_noticed() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        scene.ensemble.multi([CreateNode("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')])
        await until(lambda: one.image.partition_leader("t", 0) == 1)
        scene.ensemble.multi(
            [
                CreateNode("/config/topics/t", tree.encode_config({"retention.ms": "7"})),
                CreateNode(tree.CONFIG_CHANGE_PREFIX, tree.encode_config_change("topics", "t"), is_sequential=True),
            ]
        )
        await until(lambda: one.image.topic_configs.get("t") == {"retention.ms": "7"})
        note = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        scene.ensemble.multi([CreateNode("/isr_change_notification/isr_change_", note, is_sequential=True)])
        await until(lambda: scene.ensemble.tree.children("/isr_change_notification") == [])
        scene.ensemble.multi([CreateNode("/admin/delete_topics/t")])
        await until(lambda: "t" not in one.image.topics)
        await until(lambda: scene.ensemble.tree.children("/admin/delete_topics") == [])
        assert scene.node("/brokers/topics/t") is None

    run(play)


def test_a_mark_outlives_controllers_that_do_not_delete_and_counts_once_for_one_that_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(scene: Scene) -> None:
        Options.delete_topic_enable = False
        one = await scene.start(1)
        two = await scene.start(2)
        await one.controller.create_topics([NewTopic("t")])
        scene.ensemble.multi([CreateNode("/admin/delete_topics/t")])
        await until(lambda: "kept because delete.topic.enable=false: t." in caplog.text)
        scene.kill(one, 1)
        scene.ensemble.end_session(one.store.session_id)
        await until(lambda: two.membership.is_controller and two.membership.ready.is_set())
        await until(lambda: caplog.text.count("kept because") == 2)
        assert "t" in two.image.topics
        assert scene.ensemble.tree.children("/admin/delete_topics") == ["t"]
        Options.delete_topic_enable = True
        three = await scene.start(3)
        scene.kill(two, 2)
        scene.ensemble.end_session(two.store.session_id)
        await until(lambda: three.membership.is_controller and "t" not in three.image.topics)
        await until(lambda: scene.ensemble.tree.children("/admin/delete_topics") == [])
        assert (await three.controller.create_topics([NewTopic("t")]))[0].error is Error.NONE
        four = await scene.start(4)
        scene.kill(three, 3)
        scene.ensemble.end_session(three.store.session_id)
        await until(lambda: four.membership.is_controller and four.membership.ready.is_set())
        assert "t" in four.image.topics, "the mark has counted once"

    with caplog.at_level(logging.WARNING):
        try:
            run(play)
        finally:
            Options.delete_topic_enable = True


def test_deletion_mark_of_a_missing_topic_is_removed_before_the_name_is_reused() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        await one.controller.create_topics([NewTopic("t")])
        scene.kill(one, 1)
        scene.ensemble.multi([CreateNode("/admin/delete_topics/t"), *NODES_OF_T])  # a deletion, but for its last piece
        scene.ensemble.end_session(one.store.session_id)
        two = await scene.start(2)
        created = two.controller.create_topics([NewTopic("t")])
        assert scene.ensemble.tree.children("/admin/delete_topics") == [], "before anything is asked of it"
        assert (await created)[0].error is Error.NONE
        await asyncio.sleep(1)
        assert "t" in two.image.topics

    run(play)


def test_deletion_mark_is_removed_with_a_topic_that_another_tool_deletes() -> None:
    async def play(scene: Scene) -> None:
        Options.delete_topic_enable = False
        one = await scene.start(1)
        await one.controller.create_topics([NewTopic("t")])
        scene.ensemble.multi([CreateNode("/admin/delete_topics/t")])
        await asyncio.sleep(0.1)
        scene.ensemble.multi(NODES_OF_T)
        await until(lambda: scene.ensemble.tree.children("/admin/delete_topics") == [])
        assert "t" not in one.image.topics

    try:
        run(play)
    finally:
        Options.delete_topic_enable = True


def test_topic_changed_in_the_store_is_loaded_and_gets_leaders() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        await one.controller.create_topics([NewTopic("t", partition_count=1)])
        topic = one.image.topics["t"]
        state = tree.encode_partition_state(tree.PartitionState(-1, 9, (1,), 1))
        scene.ensemble.multi([SetNode("/brokers/topics/t/partitions/0/state", state)])  # nothing tells the controller
        grown = tree.encode_topic(topic.topic_id, (*topic.partitions, topic.partitions[0]))
        scene.ensemble.multi([SetNode("/brokers/topics/t", grown)])  # but here is a watch
        await until(lambda: len(one.image.topics["t"].partitions) == 2)
        await until(lambda: [each.leader for each in one.image.topics["t"].partitions] == [1, 1])
        assert one.image.topics["t"].partitions[0].leader_epoch == 10

    run(play)


def test_state_changed_by_another_tool_is_found_by_the_sweep() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        await one.controller.create_topics([NewTopic("t", partition_count=1), NewTopic("u")])
        await until(lambda: not one.membership.watches._changed_topics)
        state = tree.encode_partition_state(tree.PartitionState(-1, 9, (1,), 1))
        scene.ensemble.multi([SetNode("/brokers/topics/t/partitions/0/state", state)])
        one.membership.watches.enqueue("sweep")
        await until(lambda: (found := one.image.partition("t", 0)) is not None and found.leader_epoch == 10)
        assert one.image.partition_leader("t", 0) == 1

    run(play)


def test_refused_write_is_decided_again_on_the_reloaded_state() -> None:
    async def play(scene: Scene) -> None:
        one = await scene.start(1)
        await one.controller.create_topics([NewTopic("t", partition_count=1)])
        state = tree.encode_partition_state(tree.PartitionState(1, 3, (1,), 1))
        scene.ensemble.multi([SetNode("/brokers/topics/t/partitions/0/state", state)])
        (answer,) = await one.controller.delete_topics([("t", None)])
        assert answer.error is Error.NONE
        assert scene.node("/brokers/topics/t") is None

    run(play)
