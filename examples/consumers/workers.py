"""Many threads behind one consumer: one thread polls and distributes, workers handle, only finished work is
committed.

Rules:
1. The polling thread never works, so it polls often enough however slow a message is (`max.poll.interval.ms`).
2. Messages of one partition go to one worker: their order is kept, and "all before this one is done" is one number.
3. The queues are short. When one is full its partitions are paused, not the polling.
"""

from queue import Empty, Queue
from threading import Event, Thread

from confluent_kafka import Consumer, Message, TopicPartition
from examples.consumers.delivery import BY_HAND, Handle, Settings
from examples.consumers.positions import checked, place_after, place_of

POLL_SECONDS = 0.05
QUEUE_MAX = 100


class Worker(Thread):
    """Handles the messages of some partitions in their order; `done` holds positions that may be committed."""

    def __init__(self, handle: Handle, stop: Event) -> None:
        super().__init__(daemon=True)
        self.handle = handle
        self.stop = stop
        self.queue: Queue[Message] = Queue()
        self.done: Queue[TopicPartition] = Queue()
        self.failure: BaseException | None = None

    def run(self) -> None:
        while not self.stop.is_set() and self.failure is None:
            try:
                message = self.queue.get(timeout=POLL_SECONDS)
                self.handle(message)
            except Empty:
                continue
            except BaseException as error:  # noqa: BLE001 (the polling thread raises it)
                self.failure = error
            else:
                self.done.put(place_after(message))


def consume_with_workers(settings: Settings, topic: str, handle: Handle, count: int, stop: Event) -> None:
    """At least once: messages that were not finished when a partition was lost are handled again elsewhere."""
    consumer = Consumer(settings | BY_HAND)
    workers = [Worker(handle, stop) for _ in range(count)]
    consumer.subscribe([topic], on_revoke=lambda *_: commit_done(consumer, workers))
    for worker in workers:
        worker.start()
    try:
        while not stop.is_set():
            hand_over(consumer, workers)
            commit_done(consumer, workers)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        commit_done(consumer, workers)
        consumer.close()


def hand_over(consumer: Consumer, workers: list[Worker]) -> None:
    for partition in consumer.assignment():
        is_full = workers[partition.partition % len(workers)].queue.qsize() >= QUEUE_MAX
        (consumer.pause if is_full else consumer.resume)([partition])
    message = consumer.poll(POLL_SECONDS)
    if message is not None:
        workers[place_of(checked(message)).partition % len(workers)].queue.put(message)


def commit_done(consumer: Consumer, workers: list[Worker]) -> None:
    """The newest finished position of each partition that is still ours."""
    finished: dict[TopicPartition, TopicPartition] = {}
    for worker in workers:
        if worker.failure is not None:
            raise worker.failure
        while not worker.done.empty():
            position = worker.done.get()
            finished[position] = position
    positions = [finished[each] for each in consumer.assignment() if each in finished]
    if positions:
        consumer.commit(offsets=positions, asynchronous=False)
