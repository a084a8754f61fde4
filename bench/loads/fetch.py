"""Fetch of stored batches: log throughput. The reader drains the data and checks only the headers."""

import time
from collections.abc import Callable

from bench import wire
from bench.batches import read_batches
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads.threads import Load, run_together
from bench.raw_client import Connection, Target

SCRATCH_BYTES = 1 << 20


def fetch(target: Target, topic: str, connections: int, bytes_max: int, batch_bytes: int, seconds: float) -> Figures:
    """Connection N reads partition N from the start, repeatedly; all batches there have the same size."""
    read = [0] * connections
    requests = [0] * connections

    def set_up(number: int) -> Load:
        reader = Reader(target, topic, number, bytes_max, batch_bytes)

        def load() -> None:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                read[number] += reader.fetch_next()
                requests[number] += 1

        return load

    meter = run_together(target.pid, set_up, connections)
    figures = meter.figures(requests=sum(requests), payload_bytes=sum(read))
    return figures | {"mean_answer_kb": sum(read) / max(1, sum(requests)) / 1000}


class Reader:
    """Reads one partition in a loop. The first answer is checked completely, later ones by their headers."""

    def __init__(self, target: Target, topic: str, partition: int, bytes_max: int, batch_bytes: int) -> None:
        self.connection = Connection(target.of_partition(partition))
        self.topic = topic
        self.partition = partition
        self.bytes_max = bytes_max
        self.batch_bytes = batch_bytes
        self.offset = 0
        self.on_wrap: Callable[[], object] | None = None
        self._head = bytearray(4 + wire.fetch_head_bytes(topic))
        self._scratch = bytearray(SCRATCH_BYTES)
        self._records_per_batch = self._check_first_answer()

    def __repr__(self) -> str:
        return f"<Reader of {self.topic}-{self.partition} at offset {self.offset}>"

    def fetch_next(self) -> int:
        """One request and its answer; returns the number of bytes of records."""
        self.connection.send(wire.fetch_request(self.topic, self.partition, self.offset, self.bytes_max))
        self.connection.receive_into(memoryview(self._head))
        size = int.from_bytes(self._head[:4], "big")
        head = wire.read_fetch_head(memoryview(self._head)[4:], self.topic)
        self._drain(size - (len(self._head) - 4))
        if head.error or head.records_bytes < self.batch_bytes:
            raise BenchError(f"Fetch at {self.offset}: error {head.error}, {head.records_bytes} bytes of records")
        self.offset += head.records_bytes // self.batch_bytes * self._records_per_batch
        if self.offset >= head.high_watermark:
            self.offset = 0
            if self.on_wrap:
                self.on_wrap()
        return head.records_bytes

    def _drain(self, count: int) -> None:
        receive, scratch = self.connection.socket.recv_into, self._scratch
        while count > 0:
            received = receive(scratch, min(count, SCRATCH_BYTES))
            if not received:
                raise ConnectionError("the broker closed the connection")
            count -= received

    def _check_first_answer(self) -> int:
        answer = self.connection.call(wire.fetch_request(self.topic, self.partition, 0, self.bytes_max))
        head = wire.read_fetch_head(answer, self.topic)
        batches = read_batches(memoryview(answer)[head.records_position : head.records_position + head.records_bytes])
        expected = 0
        for batch in batches:
            if batch.base_offset != expected or not batch.checksum_is_right:
                raise BenchError(f"stored batch at {expected} is wrong: {batch}")
            expected = batch.next_offset
        if head.error or not batches:
            raise BenchError(f"Fetch from {self.topic}-{self.partition} was answered with error {head.error}, no batch")
        return batches[0].next_offset
