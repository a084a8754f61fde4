"""The feed: numbered deltas and their acknowledgements."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from tests import virtual_time
from tests.unit.controller.controller_harness import broker

from ottla.controller.cluster import feed as feed_module
from ottla.controller.cluster.deltas import apply_delta
from ottla.controller.cluster.feed import Feed
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage


def with_topic(image: MetadataImage, number: int) -> MetadataImage:
    return image.with_topics([TopicImage(f"t{number}", UUID(int=number + 1), (PartitionImage(1, 0, (1,), (1,)),))])


class Scene:
    """The feed of broker 9 in epoch 5 that has published topics t1 to tn."""

    def __init__(self, topics: int = 0, brokers: tuple[int, ...] = (9,)) -> None:
        self.image = MetadataImage(
            cluster_id="c", controller_id=9, controller_epoch=5, brokers={n: broker(n) for n in brokers}
        )
        self.feed = Feed()
        self.feed.begin(self.image, 5)
        for number in range(1, topics + 1):
            self.add(number)

    def add(self, number: int) -> None:
        self.image = with_topic(self.image, number)
        self.feed.publish(self.image)


def run(play: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(5):
            await play()

    virtual_time.run(whole())


def test_a_newcomer_gets_a_snapshot_and_then_only_what_is_new() -> None:
    async def play() -> None:
        scene = Scene(topics=2)
        (whole,) = await scene.feed.poll(1, -1, -1, 0)
        assert (whole.is_snapshot, whole.sequence) == (True, 2)
        image = apply_delta(MetadataImage(), whole)
        assert set(image.topics) == {"t1", "t2"}
        scene.add(3)
        scene.add(4)
        deltas = await scene.feed.poll(1, 5, 2, 0)
        assert [(delta.is_snapshot, delta.sequence) for delta in deltas] == [(False, 3), (False, 4)]
        for delta in deltas:
            image = apply_delta(image, delta)
        assert image.topics == scene.image.topics

    run(play)


def test_a_number_of_another_controller_or_from_the_future_gets_a_snapshot() -> None:
    async def play() -> None:
        scene = Scene(topics=1)
        for epoch, sequence in ((4, 1), (6, 1), (5, 2), (5, -1)):
            (delta,) = await scene.feed.poll(1, epoch, sequence, 0)
            assert delta.is_snapshot
        assert scene.feed.seen == {}, "such a number acknowledges nothing"

    run(play)


def test_a_number_that_is_too_old_gets_a_snapshot(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(feed_module, "DELTAS_MAX", 3)

    async def play() -> None:
        scene = Scene(topics=6)
        assert [delta.sequence for delta in await scene.feed.poll(1, 5, 3, 0)] == [4, 5, 6]
        (delta,) = await scene.feed.poll(1, 5, 2, 0)
        assert (delta.is_snapshot, delta.sequence) == (True, 6)

    run(play)


def test_a_poll_waits_for_news_and_ends_with_its_time() -> None:
    async def play() -> None:
        scene = Scene(topics=1)
        assert await scene.feed.poll(1, 5, 1, 0.01) == []
        waiting = asyncio.ensure_future(scene.feed.poll(1, 5, 1, 5))
        await asyncio.sleep(0)
        scene.add(2)
        assert [delta.sequence for delta in await waiting] == [2]

    run(play)


def test_resigned_controller_sends_no_deltas() -> None:
    async def play() -> None:
        scene = Scene(topics=1)
        waiting = asyncio.ensure_future(scene.feed.poll(1, 5, 1, 5))
        await asyncio.sleep(0)
        scene.feed.end()
        assert await waiting == []
        assert await scene.feed.poll(1, 5, 1, 0) == []

    run(play)


def test_change_is_acknowledged_when_all_brokers_have_polled_for_the_next_one() -> None:
    async def play() -> None:
        scene = Scene(topics=1, brokers=(1, 2, 9))
        for number in (1, 2):
            await scene.feed.poll(number, 5, 1, 0)
        scene.add(2)
        seen = asyncio.ensure_future(scene.feed.acknowledged(2, 5))
        await scene.feed.poll(1, 5, 2, 0)
        assert not seen.done()
        await scene.feed.poll(2, 5, 2, 0)
        assert await seen is True

    run(play)


def test_wait_for_a_silent_broker_is_limited_and_dead_brokers_are_not_waited_for() -> None:
    async def play() -> None:
        scene = Scene(topics=1, brokers=(1, 9))
        assert await scene.feed.acknowledged(1, 0.01) is False, "it has not asked for anything yet"
        await scene.feed.poll(1, 5, 1, 0)
        scene.add(2)
        assert await scene.feed.acknowledged(2, 0.01) is False
        seen = asyncio.ensure_future(scene.feed.acknowledged(2, 5))
        await asyncio.sleep(0)
        scene.image = scene.image.with_brokers({9: broker(9)})
        scene.feed.publish(scene.image)
        assert await seen is True

    run(play)


def test_without_listeners_everything_is_seen() -> None:
    async def play() -> None:
        assert await Scene(topics=1).feed.acknowledged(1, 0) is True

    run(play)
