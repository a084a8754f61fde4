"""Commit now and then, and always just before a partition is lost: few commits, and no repetition at a rebalance.

With confluent-kafka. Without the commit in `on_revoke` the next owner would read again all that was handled since the
last one.
"""

from threading import Event

from confluent_kafka import Consumer, Message, TopicPartition
from examples.consumers.delivery import BY_HAND, Handle, Settings
from examples.consumers.positions import checked, place_after

POLL_SECONDS = 0.2


class CommitOnRevoke:
    """Handles messages and commits asynchronously after every `commit_every` of them."""

    def __init__(self, settings: Settings, topic: str, handle: Handle, commit_every: int = 1000) -> None:
        self.handle = handle
        self.commit_every = commit_every
        self.done: dict[TopicPartition, TopicPartition] = {}  # handled and not yet committed
        self.uncommitted = 0
        self.consumer = Consumer(settings | BY_HAND)
        self.consumer.subscribe([topic], on_revoke=self.on_revoke, on_lost=self.on_lost)

    def run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                message = self.consumer.poll(POLL_SECONDS)
                if message is not None:
                    self.take(message)
        finally:
            self.consumer.close()  # leaves the group, which revokes everything: on_revoke commits

    def take(self, message: Message) -> None:
        self.handle(checked(message))
        position = place_after(message)
        self.done[position] = position
        self.uncommitted += 1
        if self.uncommitted >= self.commit_every:
            self.consumer.commit(offsets=self.take_done(list(self.done)), asynchronous=True)

    def take_done(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """What is to be committed for these partitions; from now on it counts as committed."""
        self.uncommitted = 0
        return [self.done.pop(partition) for partition in partitions if partition in self.done]

    def on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Still ours until this returns: a commit that waits for its answer."""
        positions = self.take_done(partitions)
        if positions:
            self.consumer.commit(offsets=positions, asynchronous=False)

    def on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Another consumer owns them already: a commit would be rejected, so drop the local positions."""
        self.take_done(partitions)
