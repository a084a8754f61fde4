"""Commit just before a partition is lost, with kafka-python's rebalance listener."""

from collections.abc import Callable, Collection
from threading import Event

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

POLL_MS = 2000  # kafka-python 3.0 forgets what it was assigned if this ends while it joins the group

Handle = Callable[[ConsumerRecord], None]


class CommitOnRevoke(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Handles records; `done` is what was handled and not yet committed."""

    def __init__(self, bootstrap: str, group: str, topic: str, handle: Handle) -> None:
        self.handle = handle
        self.done: dict[TopicPartition, OffsetAndMetadata] = {}
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        self.consumer.subscribe([topic], listener=self)

    def run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                for partition, batch in self.consumer.poll(POLL_MS).items():
                    for record in batch:
                        self.handle(record)
                        self.done[partition] = OffsetAndMetadata(record.offset + 1, "", -1)
        finally:
            if self.done:
                self.consumer.commit(self.done)
            self.consumer.close()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Still ours until this returns. kafka-python calls it in its network thread: nothing here may block."""
        positions = {partition: self.done.pop(partition) for partition in revoked if partition in self.done}
        if positions:
            await self.consumer.commit_async(positions)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Nothing to do: positions come from the group."""

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Another consumer owns them already: a commit would be rejected, so drop the local positions."""
        for partition in lost:
            self.done.pop(partition, None)
