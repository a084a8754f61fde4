"""A broker of the cluster as its clients see it: metadata, produce, fetch, played by the rules of the handlers."""

from __future__ import annotations

from uuid import UUID

from tests.simulation.cluster.clients import Fetched, Leader, Produced
from tests.simulation.cluster.ledger import Place
from tests.simulation.cluster.network import Answer
from tests.simulation.cluster.replicas import Replicas, bytes_of

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.protocol.batches import HEADER_BYTES, read_batch_header, read_records
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingProduce

PRODUCE_TIMEOUT_MS = 350


class Broker(Replicas):
    """One life of a broker process."""

    def on_metadata(self, topic: str, index: int, answer: Answer) -> None:
        state = self.image.partition(topic, index)
        answer(
            Leader(state.leader, state.leader_epoch, self.image.topics[topic].topic_id) if state is not None else None
        )

    def on_produce(self, topic: str, topic_id: UUID, index: int, batch: bytearray, acks: int, answer: Answer) -> None:
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is None or partition.topic_id != topic_id:
            answer(Produced(Error.UNKNOWN_TOPIC_ID))
            return
        records = bytearray(batch)
        try:
            appended = partition.append(memoryview(records), acks == -1, self.wall_ms())
        except KafkaError as refusal:
            answer(Produced(refusal.error))
            return
        place = Place(partition.topic_id, index)
        if not appended.is_duplicate:
            for record in read_records(records):
                self.ledger.on_append(place, partition.leader_epoch, self.host, record.value or b"", acks == -1)
        self.note(partition)
        self._answer_produce(partition, appended.base_offset, appended.last_offset, acks, answer)

    def _answer_produce(self, partition: Partition, first: int, last: int, acks: int, answer: Answer) -> None:
        done = Produced(Error.NONE, first, partition.topic_id)
        if (acks != -1 and not partition.is_flushing) or partition.is_replicated(last):
            answer(done)
            return
        leading_since = partition.leader_since_epoch

        def ready() -> None:
            self.note(partition)
            if partition.leader_since_epoch != leading_since:
                answer(Produced(Error.NOT_LEADER_OR_FOLLOWER))
            elif acks == -1 and partition.is_under_min_isr:
                answer(Produced(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
            else:
                answer(done if partition.is_replicated(last) else Produced(Error.REQUEST_TIMED_OUT))

        waiting = WaitingProduce(1, ready, fails_below_min_isr=acks == -1)
        partition.wait_for_replication(last, waiting)
        self.after(PRODUCE_TIMEOUT_MS, waiting.complete)

    def on_read(
        self, topic: str, index: int, topic_id: UUID, offset: int, epoch: int, is_close: bool, answer: Answer
    ) -> None:
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is None or partition.topic_id != topic_id:
            answer(Fetched(Error.UNKNOWN_TOPIC_ID))
            return
        try:
            if is_close:
                partition.require_epoch(epoch)
            else:
                partition.require_leader(epoch)
            found = partition.read(offset, self.cluster.fetch_bytes, True, False)
        except KafkaError as refusal:
            answer(Fetched(refusal.error))
            return
        answer(Fetched(Error.NONE, whole_batches(partition, found), partition.topic_id))


def whole_batches(partition: Partition, found: FileRange | None) -> bytes:
    """What a reader makes of an answer: a batch that is cut off at the end is left for the next one."""
    data = bytes_of(partition, found)
    end = 0
    while len(data) - end >= HEADER_BYTES and len(data) - end >= read_batch_header(data, end).batch_bytes:
        end += read_batch_header(data, end).batch_bytes
    return data[:end]
