"""aiokafka: the asyncio client, which still speaks old versions of most APIs."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin import NewTopic as TopicToCreate
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
from tests.conformance.conftest import NewTopic

WAIT_SECONDS = 15


@asynccontextmanager
async def producing(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(bootstrap: str, *partitions: TopicPartition, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, **{"auto_offset_reset": "earliest", **settings})
    await consumer.start()
    consumer.assign(partitions)
    try:
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [await consumer.getone() for _ in range(count)]


async def until(ask: Callable[[], Awaitable[Any]], expected: object) -> None:
    """Apache Kafka publishes metadata a little after it has answered."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await ask() != expected:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_round_trip(bootstrap: str, topic: str, codec: str | None) -> None:
    async def main() -> None:
        async with producing(bootstrap, compression_type=codec, linger_ms=10) as producer:
            futures = [
                await producer.send(topic, b"value %d " % n * 20, key=b"%d" % n, headers=[("h", b"%d" % n)])
                for n in range(100)
            ]
            metadata = await asyncio.gather(*futures)
            assert [row.offset for row in metadata] == list(range(100))
        async with consuming(bootstrap, TopicPartition(topic, 0)) as consumer:
            rows = await take(consumer, 100)
        assert [row.value for row in rows] == [b"value %d " % n * 20 for n in range(100)]
        assert [(row.key, row.headers) for row in rows] == [(b"%d" % n, (("h", b"%d" % n),)) for n in range(100)]

    asyncio.run(main())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_all_kinds_of_acks(bootstrap: str, topic: str, acks: int | str) -> None:
    async def main() -> None:
        async with producing(bootstrap, acks=acks) as producer:
            metadata = await producer.send_and_wait(topic, b"value", timestamp_ms=int(time.time() * 1000))
            assert metadata is None if acks == 0 else metadata.offset == 0
        async with consuming(bootstrap, TopicPartition(topic, 0)) as consumer:
            assert [row.value for row in await take(consumer, 1)] == [b"value"]

    asyncio.run(main())


def test_the_idempotent_producer(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with producing(bootstrap, enable_idempotence=True, max_batch_size=200) as producer:
            futures = [await producer.send(topic, b"%d" % number) for number in range(200)]
            await asyncio.gather(*futures)
        async with consuming(bootstrap, TopicPartition(topic, 0), isolation_level="read_committed") as consumer:
            assert [int(row.value) for row in await take(consumer, 200)] == list(range(200))

    asyncio.run(main())


def test_a_message_that_is_too_large(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with producing(bootstrap, max_request_size=5_000_000) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2_000_000)
            assert (await producer.send_and_wait(topic, b"small")).offset == 0

    asyncio.run(main())


def test_seek_and_offsets(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    home, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    start = int(time.time() * 1000) - 100_000

    async def main() -> None:
        async with producing(bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number, partition=0, timestamp_ms=start + number * 1000)
        async with consuming(bootstrap, home, other) as consumer:
            assert await consumer.beginning_offsets([home, other]) == {home: 0, other: 0}
            assert await consumer.end_offsets([home, other]) == {home: 10, other: 0}
            found = await consumer.offsets_for_times({home: start + 4500, other: start})
            assert (found[home].offset, found[other]) == (5, None)
            consumer.seek(home, 8)
            assert [row.value for row in await take(consumer, 2)] == [b"8", b"9"]
            await consumer.seek_to_beginning(home)
            assert (await take(consumer, 1))[0].offset == 0
            await consumer.seek_to_end(home)
            assert await consumer.position(home) == 10
            assert await consumer.getmany(home, timeout_ms=200) == {}

    asyncio.run(main())


def test_an_offset_out_of_range(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        home = TopicPartition(topic, 0)
        async with consuming(bootstrap, home, auto_offset_reset="none") as consumer:
            consumer.seek(home, 55)
            with pytest.raises(OffsetOutOfRangeError):
                await take(consumer, 1)

    asyncio.run(main())


def test_a_waiting_consumer_is_woken(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        async with (
            producing(bootstrap) as producer,
            consuming(bootstrap, TopicPartition(topic, 0), fetch_max_wait_ms=8000) as consumer,
        ):
            waiting = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.3)
            started = time.monotonic()
            await producer.send_and_wait(topic, b"news")
            assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).value == b"news"
            assert time.monotonic() - started < 2

    asyncio.run(main())


def test_an_unknown_topic_is_created_by_sending(bootstrap: str, topic_name: str) -> None:
    async def main() -> None:
        async with producing(bootstrap) as producer:
            assert (await producer.send_and_wait(topic_name, b"v")).offset == 0
            assert await producer.partitions_for(topic_name) == {0}

    asyncio.run(main())


def test_the_admin_client(bootstrap: str, topic_name: str) -> None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()

        async def partition_count() -> int:
            (described,) = await admin.describe_topics([topic_name])
            return len(described["partitions"])

        async def retention() -> str:
            (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic_name)])
            return str({row[0]: row[1] for row in configs.resources[0][4]}["retention.ms"])

        async def is_listed() -> bool:
            return topic_name in await admin.list_topics()

        try:
            created = await admin.create_topics([TopicToCreate(topic_name, 2, 1, topic_configs={"retention.ms": "77"})])
            assert [row[:2] for row in created.topic_errors] == [(topic_name, 0)]
            again = await admin.create_topics([TopicToCreate(topic_name, 2, 1)])
            assert [row[:2] for row in again.topic_errors] == [(topic_name, 36)]
            await admin.create_partitions({topic_name: NewPartitions(4)})
            await until(partition_count, 4)
            cluster = await admin.describe_cluster()
            assert [f"{row['host']}:{row['port']}" for row in cluster["brokers"]] == [bootstrap]
            assert await retention() == "77"
            resource = ConfigResource(ConfigResourceType.TOPIC, topic_name, {"retention.ms": "88"})
            (altered,) = await admin.alter_configs([resource])
            assert altered.resources[0][0] == 0
            await until(retention, "88")
            deleted = await admin.delete_topics([topic_name])
            assert deleted.topic_error_codes == [(topic_name, 0)]
            await until(is_listed, False)
        finally:
            await admin.close()

    asyncio.run(main())
