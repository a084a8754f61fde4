"""Produce with large prepared batches, several requests in flight: write throughput of a log."""

import time

from bench import wire
from bench.batches import batch_of_bytes
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads.threads import Load, run_together
from bench.raw_client import Connection, Target

DEPTH = 5


def produce(
    target: Target, topic: str, connections: int, batch_bytes: int, record_bytes: int, seconds: float, bytes_max: int
) -> Figures:
    """Connection N writes to partition N (acks=all) until the time is up or `bytes_max` are written in total."""
    batch = batch_of_bytes(batch_bytes, record_bytes)
    requests_max = max(1, bytes_max // len(batch.data) // connections)
    answered = [0] * connections

    def set_up(number: int) -> Load:
        writer = _Writer(target, topic, number, batch.data)

        def load() -> None:
            answered[number] = writer.run(time.perf_counter() + seconds, requests_max)

        return load

    meter = run_together(target.pid, set_up, connections)
    requests = sum(answered)
    return meter.figures(requests=requests, payload_bytes=requests * len(batch.data), records=requests * batch.records)


def fill(target: Target, topic: str, partitions: int, batch_bytes: int, record_bytes: int, partition_bytes: int) -> int:
    """Write the given bytes to each partition, all in batches of one size; return that size."""
    batch = batch_of_bytes(batch_bytes, record_bytes)
    for partition in range(partitions):
        _Writer(target, topic, partition, batch.data).run(time.perf_counter() + 600, partition_bytes // len(batch.data))
    return len(batch.data)


class _Writer:
    """One connection that keeps DEPTH Produce requests in flight."""

    def __init__(self, target: Target, topic: str, partition: int, batch: bytes) -> None:
        self.connection = Connection(target.of_partition(partition))
        self.request = wire.produce_request(topic, partition, batch)
        answer_bytes = 4 + len(self.connection.produce_first(self.request, topic))
        self.answer = bytearray(answer_bytes)
        self.error_position = 4 + wire.produce_error_position(topic)

    def __repr__(self) -> str:
        return f"<_Writer {self.connection!r} of {len(self.request)} bytes a request>"

    def run(self, end: float, requests_max: int) -> int:
        """Writes until `end` (perf_counter), waits for what is in flight and returns the number of requests."""
        sent = answered = 0
        more = True
        while more or answered < sent:
            while more and sent - answered < DEPTH:
                self.connection.send(self.request)
                sent += 1
                more = sent < requests_max and time.perf_counter() < end
            self._receive_answer()
            answered += 1
        self.connection.close()
        return answered

    def _receive_answer(self) -> None:
        self.connection.receive_into(memoryview(self.answer))
        # An answer with an error message would be longer: its size differs, and its error code is not zero.
        size = int.from_bytes(self.answer[:4], "big")
        error = int.from_bytes(self.answer[self.error_position : self.error_position + 2], "big")
        if error or size != len(self.answer) - 4:
            raise BenchError(f"Produce was answered with error {error} in {size} bytes")
