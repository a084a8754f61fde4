"""Order of concurrent produces: if the first batch finds no topic and the second one does, neither is lost."""

from __future__ import annotations

from pathlib import Path

from tests.unit.broker.two_brokers import CONTROLLER, Asker, AskingBroker, ControllerBroker, with_two_brokers

from ottla.base.errors import Error
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

TOPIC = "new"


def produce(sequence: int) -> ProduceRequest:
    records = [Record(0, 1, None, b"v", ())]
    batch = memoryview(build_batch(records, producer_id=1000, producer_epoch=0, base_sequence=sequence))
    rows = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=rows)])


def test_the_second_batch_is_not_appended_before_the_first(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        peer = two.peers.open(CONTROLLER, "client")

        async def send(sequence: int) -> tuple[int, int]:
            answer = await peer.call(produce(sequence), ProduceResponse, 9)
            row = answer.responses[0].partition_responses[0]
            return row.error_code, row.base_offset

        one.parts.node.images.add_listener(one.parts.publisher.on_image)
        assert (await send(0))[0] == Error.UNKNOWN_TOPIC_OR_PARTITION
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        await Asker(two).ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        await one.parts.publisher.wait_until_applied()
        assert (await send(1))[0] == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert [await send(sequence) for sequence in (0, 1, 2)] == [(Error.NONE, 0), (Error.NONE, 1), (Error.NONE, 2)]

    with_two_brokers(tmp_path, play)


def test_a_damaged_transactional_batch_is_refused_like_any_other(tmp_path: Path) -> None:
    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        peer = two.peers.open(CONTROLLER, "client")
        one.parts.node.images.add_listener(one.parts.publisher.on_image)
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        await Asker(two).ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        await one.parts.publisher.wait_until_applied()
        records = [Record(0, 1, None, b"v", ())]
        batch = build_batch(records, producer_id=1000, producer_epoch=0, base_sequence=0, is_transactional=True)
        batch[8:12] = bytes(4)  # its length
        rows = [PartitionProduceData(index=0, records=memoryview(batch))]
        data = [TopicProduceData(name=TOPIC, partition_data=rows)]
        for _ in range(2):  # the connection is still open
            request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=1000, topic_data=data)
            answer = await peer.call(request, ProduceResponse, 9)
            assert answer.responses[0].partition_responses[0].error_code == Error.CORRUPT_MESSAGE

    with_two_brokers(tmp_path, play)
