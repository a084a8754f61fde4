"""Unexpected errors: loops continue, waiting requests are answered, and no change is left incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests import virtual_time
from tests.unit.controller.test_damage import Story, leaders, run, three, wait

from ottla.base.errors import Error, KafkaError
from ottla.controller.auto_topic_creation import BATCH_MAX, AutoTopicCreationManager
from ottla.controller.cluster.leader_rebalance import LeaderRebalancer
from ottla.controller.decisions.ottla_version import LEVEL_MAX
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult
from ottla.controller.image import NO_LEADER
from ottla.controller.stores.store import Node, SetNode
from ottla.protocol.messages.inter_broker import ClusterPollRequest, OfflineReplicas


def test_topics_that_wait_behind_a_failure_are_tried_all_the_same() -> None:
    tried: list[str] = []

    async def create(wanted: Sequence[NewTopic]) -> list[TopicResult]:
        await asyncio.sleep(0.1)
        tried.extend(topic.name for topic in wanted)
        if len(tried) == BATCH_MAX:
            raise RuntimeError("unexpected")
        return []

    async def play() -> None:
        creation = AutoTopicCreationManager(create, virtual_time.LoopClock())
        async with asyncio.timeout(10):
            await creation.create_missing(f"t{number}" for number in range(BATCH_MAX + 50))

    virtual_time.run(play())
    assert len(tried) == BATCH_MAX + 50


def test_leaders_are_balanced_again_after_a_round_that_failed() -> None:
    class Settings:
        auto_leader_rebalance_enable = True
        leader_imbalance_check_interval_seconds = 1
        ottla_heal_slow_after_ms = -1
        ottla_heal_slow_sync_ms = -1
        rounds = 0

        @property
        def leader_imbalance_per_broker_percentage(self) -> int:
            self.rounds += 1
            if self.rounds == 1:
                raise RuntimeError("unexpected")
            return 10

    async def play(story: Story) -> None:
        one, *_ = await three(story)
        settings = Settings()
        watches = one.membership.watches
        upkeep = LeaderRebalancer(one.store, one.controller, one.images, watches, lambda: settings, story.clock)
        one.images.publish(one.image)
        await wait(lambda: settings.rounds >= 3)
        upkeep.stop()

    run(play)


def test_an_election_that_fails_in_the_middle_leaves_no_half_controller() -> None:
    async def play(story: Story) -> None:
        one, two, _ = await three(story)
        read = two.membership.watches.read_brokers
        failures = [RuntimeError("unexpected")]

        async def fail_once() -> object:
            if failures:
                raise failures.pop()
            return await read()

        two.membership.watches.read_brokers = fail_once  # type: ignore[method-assign,assignment]
        story.members[2].membership.is_candidate = False
        story.kill(one, 1)
        one.store.die()
        await wait(lambda: story.controller is two and leaders(two, "b") == [2])
        assert not failures

    run(play)


def test_offline_replicas_are_reported_until_they_take_effect() -> None:
    async def play(story: Story) -> None:
        one, two, _ = await three(story)
        topic = one.image.topics["a"]
        broker_epoch = two.membership.broker_epoch
        offline = [OfflineReplicas(topic_id=topic.topic_id, partitions=[0])]

        def poll() -> ClusterPollRequest:
            return ClusterPollRequest(
                broker_id=2, broker_epoch=broker_epoch, controller_epoch=-1, offline=offline, level_max=LEVEL_MAX
            )

        one.store.is_away = True
        assert (await one.controller.poll(poll())).error_code != Error.NONE
        one.store.come_back()
        assert leaders(one, "a") == [2, 3]
        await wait(lambda: one.controller.is_active)
        assert (await one.controller.poll(poll())).error_code == Error.NONE
        assert leaders(one, "a") == [3, 3]

    run(play)


def test_a_topic_that_changed_is_read_again_when_the_store_was_away_in_the_middle() -> None:
    async def play(story: Story) -> None:
        one, *_ = await three(story)
        await wait(lambda: not one.membership.watches._changed_topics)
        subtree = one.store.subtree
        failures = [KafkaError(Error.KAFKA_STORAGE_ERROR)]

        async def fail_once(path: str) -> dict[str, Node]:
            if failures and path == "/brokers/topics/a":
                raise failures.pop()
            return await subtree(path)

        one.store.subtree = fail_once  # type: ignore[method-assign]
        node = story.node("/brokers/topics/a")
        assert node is not None
        story.ensemble.multi([SetNode("/brokers/topics/a", node.replace(b'"1":[3,2]', b'"1":[3,2],"2":[2]'))])
        await wait(lambda: len(one.image.topics["a"].partitions) == 3, 2)
        assert NO_LEADER not in leaders(one, "a")

    run(play)
