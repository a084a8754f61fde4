"""Demoted brokers, in maintenance or slow: other brokers lead, and no partition loses its leader."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest
from tests.unit.controller.controller_harness import ControllerHarness, broker
from tests.unit.controller.test_leader_rebalance import Settings, cluster, partition, propose
from tests.unit.controller.test_membership import Member, Scene, run, until

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.cluster import controller as cluster_controller
from ottla.controller.cluster import leader_rebalance as relief_module
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
)
from ottla.controller.decisions.demoted_brokers import (
    MAINTENANCE_UNTIL_KEY,
    ReplicaLag,
    SlowBrokerDetector,
    brokers_in_maintenance,
    demoted_brokers,
    with_demotions,
    with_slow_disks,
)
from ottla.controller.decisions.elect_leaders import ElectionType, decide_elections
from ottla.controller.decisions.leader_election import AvailableReplicas, decide_broker_changes, elect_partition
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.leader_rebalance import decide_leader_rebalance
from ottla.controller.decisions.ottla_version import NEW_CLUSTER_FEATURES, OTTLA_VERSION_FEATURE
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage, PartitionImage
from ottla.protocol.messages.inter_broker import ClusterPollRequest

SAFE = ElectionRules(min_insync_replicas=2)
ALL = frozenset({1, 2, 3})
ORDERS = TopicPartition("orders", 0)
MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
def _no_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers of these tests do not poll for deltas."""
    monkeypatch.setattr(cluster_controller, "ACKNOWLEDGE_SECONDS_MAX", 0.0)


# ---- who leads


@pytest.mark.parametrize(
    ("leader", "isr", "there", "resting", "leads"),
    [
        (1, (1, 2, 3), (1, 2, 3), {1}, 2),  # the first that is in sync and does not rest
        (1, (1, 2, 3), (1, 2, 3), {1, 2}, 3),
        (1, (1, 3), (1, 2, 3), {1}, 3),  # broker 2 is not in sync
        (1, (1,), (1, 2, 3), {1}, 1),  # there is no other candidate
        (1, (1, 2), (1, 3), {1}, 1),  # who could is dead
        (1, (1, 2, 3), (1, 2, 3), {1, 2, 3}, 1),  # all rest: nothing would be gained
        (2, (1, 2, 3), (1, 2, 3), {1}, 2),  # the leader does not rest
        (3, (1, 2, 3), (1, 2), {1}, 2),  # a dead leader is followed by one that does not rest
        (3, (1, 3), (1, 2), {1}, 1),  # a demoted leader is better than none
    ],
)
def test_leaders_with_demoted_brokers(
    leader: int, isr: tuple[int, ...], there: tuple[int, ...], resting: set[int], leads: int
) -> None:
    old = PartitionImage(leader, 5, isr, (1, 2, 3), 10)
    alive = frozenset(there)
    new = elect_partition(old, AvailableReplicas(alive, alive, frozenset(resting)), SAFE)
    assert new.leader == leads
    assert new.isr == tuple(member for member in isr if member in alive)
    assert (new.leader_epoch, new == old) == ((5, True) if new == old else (5 + (leads != leader), False))
    assert elect_partition(new, AvailableReplicas(alive, alive, frozenset(resting)), SAFE) is new


def test_broker_that_shuts_down_does_not_replace_a_demoted_leader() -> None:
    old = PartitionImage(1, 5, (1, 2), (1, 2), 10)
    assert elect_partition(old, AvailableReplicas(frozenset({1, 2}), frozenset({1}), frozenset({1})), SAFE).leader == 1


def test_demoted_preferred_replicas_do_not_replace_leaders() -> None:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("orders", assignments=((0, (1, 2)),)))
    resting = BrokerAvailability(demoted=frozenset({1}))
    stand.run(decide_broker_changes(stand.image, {n: broker(n) for n in (1, 2, 3)}, resting, SAFE))
    assert stand.image.partition_leader("orders", 0) == 2
    (refused,) = decide_elections(stand.image, ElectionType.PREFERRED, [ORDERS], resting, SAFE).reply
    assert refused.error is Error.PREFERRED_LEADER_NOT_AVAILABLE
    assert not decide_leader_rebalance(stand.image, 10, resting).operations
    assert decide_leader_rebalance(stand.image, 10, BrokerAvailability()).reply == 1


def test_leaders_on_a_demoted_broker_move_in_the_same_write() -> None:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("orders", assignments=((0, (2, 3)),)))
    resting = BrokerAvailability(demoted=frozenset({1}))
    decision = decide_reassignments(stand.image, [ReassignmentRequest(ORDERS, (1, 2, 3))], resting, SAFE)
    assert with_demotions(stand.image, decision, resting, SAFE) == decision  # broker 1 is not in sync yet
    alone = ControllerHarness(brokers=3)
    before = alone.image
    alone.create(NewTopic("orders", assignments=((0, (1, 2)),)))
    made = with_demotions(
        before, decide_broker_changes(alone.image, alone.image.brokers, BrokerAvailability(), SAFE), resting, SAFE
    )
    alone.run(made)
    assert alone.image.partition("orders", 0) == PartitionImage(2, 1, (1, 2), (1, 2), 1)


# ---- the setting


def image_with(
    configs: Mapping[str, Mapping[str, str]], features: Mapping[str, int] = NEW_CLUSTER_FEATURES
) -> MetadataImage:
    return MetadataImage(broker_configs=configs, features=features)


@pytest.mark.parametrize(
    ("configs", "found"),
    [
        ({"2": {MAINTENANCE_UNTIL_KEY: "1001"}}, {2}),
        ({"2": {MAINTENANCE_UNTIL_KEY: "1000"}}, set()),  # over, to the millisecond
        ({"2": {MAINTENANCE_UNTIL_KEY: " 1001 "}}, {2}),
        (
            {
                "2": {MAINTENANCE_UNTIL_KEY: "soon"},
                "3": {MAINTENANCE_UNTIL_KEY: ""},
                "4": {MAINTENANCE_UNTIL_KEY: "²"},
                "5": {MAINTENANCE_UNTIL_KEY: "-1"},
            },
            set(),
        ),
        ({"": {MAINTENANCE_UNTIL_KEY: "1001"}}, set()),  # all brokers at once are in no maintenance
        ({"2": {MAINTENANCE_UNTIL_KEY: "1001"}, "3": {MAINTENANCE_UNTIL_KEY: "9999"}, "1": {}}, {2, 3}),
    ],
)
def test_brokers_in_maintenance(configs: Mapping[str, Mapping[str, str]], found: set[int]) -> None:
    assert brokers_in_maintenance(image_with(configs), 1000) == found


def test_no_broker_is_demoted_while_an_older_broker_may_be_the_controller() -> None:
    image = image_with({"2": {MAINTENANCE_UNTIL_KEY: "1001"}}, {OTTLA_VERSION_FEATURE: 1})
    assert demoted_brokers(image, 1000, frozenset({3})) == frozenset()
    assert demoted_brokers(image_with({"2": {MAINTENANCE_UNTIL_KEY: "1001"}}), 1000, frozenset({3})) == {2, 3}


def asked(value: str, name: str = "2") -> ConfigResourceChange:
    return ConfigResourceChange(
        ConfigResourceType.BROKER, name, (ConfigOperation(OperationType.SET, MAINTENANCE_UNTIL_KEY, value),)
    )


def test_the_setting_is_refused_with_the_name_of_the_feature_that_it_needs() -> None:
    stand = ControllerHarness()
    settings = BrokerSettings({"node.id": "1", "log.dirs": "/tmp/none", "listeners": "PLAINTEXT://:9092"})
    (result,) = decide_config_changes(
        stand.image.with_features({OTTLA_VERSION_FEATURE: 1}, 1), [asked("5")], settings
    ).reply
    assert result.error is Error.INVALID_CONFIG
    assert "ottla.version 2" in (result.message or "")
    for change, error in (
        (asked("5"), Error.NONE),
        (asked("-1"), Error.INVALID_REQUEST),
        (asked("soon"), Error.INVALID_REQUEST),
        (asked("5", name=""), Error.INVALID_REQUEST),
    ):
        (result,) = decide_config_changes(stand.image, [change], settings).reply
        assert result.error is error


# ---- slow brokers


def seen(behind: int, held: int = 4, *, brokers: int = 3, epoch: int = 0) -> MetadataImage:
    """Broker 3 is out of sync in some of its partitions."""
    stand = ControllerHarness(brokers=brokers)
    stand.create(NewTopic("orders", assignments=tuple((n, (1, 2, 3)) for n in range(held))))
    topic = stand.image.topics["orders"]
    partitions = tuple(
        each._replace(isr=(1, 2)) if index < behind else each for index, each in enumerate(topic.partitions)
    )
    known = {**stand.image.brokers, 3: stand.image.brokers[3]._replace(epoch=epoch)}
    return stand.image.with_brokers(known).with_topics([topic._replace(partitions=partitions)])


class Watch:
    """SlowBrokers, updated once a minute; a broker that is behind for five minutes is slow."""

    def __init__(self) -> None:
        self.brokers = SlowBrokerDetector()
        self.minute = 0

    def slow(self, image: MetadataImage, minutes: int = 1, after_ms: int = 5 * MINUTE_MS) -> set[int]:
        for _ in range(minutes):
            self.minute += 1
            found = self.brokers.update(image, shares_of(image), self.minute * MINUTE_MS, after_ms)
        return set(found)


def test_half_of_the_replicas_out_of_sync_for_long_enough_is_slow() -> None:
    watch = Watch()
    assert watch.slow(seen(behind=2), 5) == set()
    assert watch.slow(seen(behind=2)) == {3}


def test_broker_with_less_than_half_behind_is_not_slow_and_an_interruption_restarts_the_time() -> None:
    watch = Watch()
    assert watch.slow(seen(behind=1), 20) == set()
    assert watch.slow(seen(behind=4), 5) == set()
    assert watch.slow(seen(behind=1)) == set()
    assert watch.slow(seen(behind=4), 5) == set()
    assert watch.slow(seen(behind=4)) == {3}


def test_a_slow_broker_is_well_when_it_has_kept_up_for_as_long() -> None:
    watch = Watch()
    assert watch.slow(seen(behind=4), 6) == {3}
    assert watch.slow(seen(behind=0), 5) == {3}
    assert watch.slow(seen(behind=4)) == {3}
    assert watch.slow(seen(behind=0), 5) == {3}
    assert watch.slow(seen(behind=0)) == set()


def test_a_restart_gives_a_broker_its_time_again() -> None:
    watch = Watch()
    watch.slow(seen(behind=4), 5)
    assert watch.slow(seen(behind=4, epoch=7), 5) == set()
    assert watch.slow(seen(behind=4, epoch=7)) == {3}


def test_dead_broker_is_not_slow() -> None:
    watch = Watch()
    assert watch.slow(seen(behind=4), 6) == {3}
    image = seen(behind=4)
    assert watch.slow(image.with_brokers({n: image.brokers[n] for n in (1, 2)})) == set()


def test_no_broker_is_slow_if_the_detection_is_disabled() -> None:
    watch = Watch()
    assert watch.slow(seen(behind=4), 6) == {3}
    assert watch.slow(seen(behind=4), 6, after_ms=-1) == set()


def test_a_disk_that_is_too_slow_for_long_enough_makes_its_broker_slow() -> None:
    image = seen(behind=0)
    told = {1: 3, 3: 501, 9: 9999}
    assert {broker for broker, each in with_slow_disks(shares_of(image), told, 500).items() if each.is_behind} == {3}
    assert (
        with_slow_disks(shares_of(image), told, 501) == with_slow_disks(shares_of(image), told, -1) == shares_of(image)
    )
    brokers = SlowBrokerDetector()
    for minute in range(6):
        found = brokers.update(image, with_slow_disks(shares_of(image), told, 500), minute * MINUTE_MS, 5 * MINUTE_MS)
    assert found == {3}
    assert with_slow_disks(shares_of(image), told, 500)[3].reason == "its disk takes 501 ms or longer for every sync"


def test_when_most_disks_are_slow_it_is_not_the_brokers() -> None:
    image, brokers = seen(behind=0), SlowBrokerDetector()
    for minute in range(20):
        found = with_slow_disks(shares_of(image), {1: 900, 3: 900}, 500)
        assert brokers.update(image, found, minute * MINUTE_MS, 5 * MINUTE_MS) == set()


def test_when_most_brokers_do_not_keep_up_it_is_not_the_brokers() -> None:
    watch = Watch()
    image = seen(behind=4)
    topic = image.topics["orders"]
    alone = image.with_topics([topic._replace(partitions=tuple(each._replace(isr=(1,)) for each in topic.partitions))])
    assert watch.slow(alone, 20) == set()


def test_added_and_sole_replicas_do_not_count() -> None:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("orders", assignments=((0, (1, 2)),)), NewTopic("alone", assignments=((0, (3,)),)))
    stand.run(decide_reassignments(stand.image, [ReassignmentRequest(ORDERS, (1, 2, 3))], BrokerAvailability(), SAFE))
    (share,) = BrokerIndex(stand.image).replica_lags([3]).values()
    assert share == ReplicaLag()
    assert not share.is_behind


# ---- a controller at work


async def maintain(member: Member, broker_id: int, until_ms: int) -> None:
    def decide(image: MetadataImage):  # type: ignore[no-untyped-def]
        settings = BrokerSettings({"node.id": "1", "log.dirs": "/tmp/none", "listeners": "PLAINTEXT://:9092"})
        return decide_config_changes(image, [asked(str(until_ms), str(broker_id))], settings)

    (result,) = await member.controller.change(decide)
    assert result.error is Error.NONE


def test_leaders_move_in_the_write_that_starts_the_maintenance_and_return_after_it() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene, Settings())
        assert partition(controller).leader == 1
        before = scene.ensemble.transactions
        await maintain(controller, 1, scene.clock.ms + MINUTE_MS)
        assert scene.ensemble.transactions == before + 1
        assert (partition(controller).leader, partition(controller).isr) == (2, (1, 2))
        await propose(controller, (2,))  # broker 1 is restarted, and back
        await propose(controller, (1, 2))
        assert partition(controller).leader == 2
        scene.clock.ms += MINUTE_MS
        await until(lambda: partition(controller).leader == 1)

    run(play)


def test_demoted_sole_leader_is_replaced_in_the_write_that_adds_a_replica_to_the_isr() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        await propose(controller, (1,))
        await maintain(controller, 1, scene.clock.ms + MINUTE_MS)
        assert partition(controller).leader == 1
        await propose(controller, (1, 2))
        assert (partition(controller).leader, partition(controller).isr) == (2, (1, 2))

    run(play)


def test_new_topics_have_replicas_on_a_broker_in_maintenance_and_other_leaders() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        await maintain(controller, 1, scene.clock.ms + MINUTE_MS)
        wanted = [NewTopic("new", assignments=((0, (1, 3)),)), NewTopic("alone", assignments=((0, (1,)),))]
        await controller.controller.create_topics(wanted)
        rows = [controller.image.topics[new.name].partitions[0] for new in wanted]
        assert [(row.leader, row.isr) for row in rows] == [(3, (1, 3)), (1, (1,))]

    run(play)


def test_leaders_of_a_slow_broker_move_and_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relief_module, "SLOW_CHECK_MS", 0)

    async def play(scene: Scene) -> None:
        quick = type("Quick", (Settings,), {"ottla_heal_slow_after_ms": 0})()
        controller = await cluster(scene, quick)
        assert [partition(controller, index).leader for index in (0, 1)] == [1, 2]
        await propose(controller, (1,))  # broker 2 is out of sync in one of two
        await until(lambda: partition(controller, 1).leader == 1)
        assert partition(controller, 1).isr == (2, 1)
        assert controller.controller.liveness.demoted == {2}
        await propose(controller, (1, 2))
        await until(lambda: partition(controller, 1).leader == 2)

    run(play)


def test_a_broker_with_a_slow_disk_gives_its_leaderships_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relief_module, "SLOW_CHECK_MS", 0)

    async def play(scene: Scene) -> None:
        quick = type("Quick", (Settings,), {"ottla_heal_slow_after_ms": 0})()
        controller = await cluster(scene, quick)
        second = controller.image.brokers[2]
        poll = partial(
            ClusterPollRequest, broker_id=2, broker_epoch=second.epoch, controller_epoch=-1, max_wait_ms=0, level_max=2
        )
        await controller.controller.poll(poll(sync_ms=800))
        await until(lambda: partition(controller, 1).leader == 1)
        assert partition(controller, 1).isr == (2, 1)
        await controller.controller.poll(poll(sync_ms=3))
        await until(lambda: partition(controller, 1).leader == 2)

    run(play)


def test_a_broker_goes_on_leading_if_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relief_module, "SLOW_CHECK_MS", 0)

    async def play(scene: Scene) -> None:
        controller = await cluster(scene, type("Never", (Settings,), {"ottla_heal_slow_after_ms": -1})())
        await propose(controller, (1,))
        await asyncio.sleep(5)
        assert partition(controller, 1).leader == 2

    run(play)


def shares_of(image: MetadataImage) -> dict[int, ReplicaLag]:
    return dict(BrokerIndex(image).replica_lags(image.brokers))
