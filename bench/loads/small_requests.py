"""Many connections with one-record Produce requests, each with a fixed number of them in flight."""

import select
import time

from bench import wire
from bench.batches import batch_of, payloads
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.meter import Meter
from bench.raw_client import Connection, Target

POLL_SECONDS_MAX = 10.0


def produce(target: Target, topic: str, connections: int, depth: int, record_bytes: int, seconds: float) -> Figures:
    """Connection N writes to partition N (acks=1): `depth` requests in one send, and the next when all are answered."""
    batch = batch_of([payloads(record_bytes)[0]]).data
    lanes = [_Lane(target, topic, number, batch, depth) for number in range(connections)]
    try:
        return _run(target, lanes, depth, seconds)
    finally:
        for lane in lanes:
            lane.connection.close()


class _Lane:
    """One connection with its prepared requests and the room for their answers."""

    def __init__(self, target: Target, topic: str, partition: int, batch: bytes, depth: int) -> None:
        request = wire.produce_request(topic, partition, batch, acks=1)
        self.connection = Connection(target.of_partition(partition))
        self.socket = self.connection.socket
        self.answer_bytes = 4 + len(self.connection.produce_first(request, topic))
        self.requests = request * depth
        self.buffer = bytearray(self.answer_bytes * depth)
        self.view = memoryview(self.buffer)
        self.received = 0
        self.sent_ns = 0
        self.errors = slice(4 + wire.produce_error_position(topic) + 1, None, self.answer_bytes)  # low bytes of all

    def __repr__(self) -> str:
        return f"<_Lane {self.connection!r}, {self.received} of {len(self.buffer)} bytes>"

    def check(self) -> None:
        if any(self.buffer[self.errors]):
            raise BenchError(f"Produce answers hold errors {list(self.buffer[self.errors])}")


def _run(target: Target, lanes: list[_Lane], depth: int, seconds: float) -> Figures:
    poll = select.epoll()
    by_handle = {lane.socket.fileno(): lane for lane in lanes}
    for handle in by_handle:
        poll.register(handle, select.EPOLLIN)
    latencies: list[int] = []
    clock = time.perf_counter_ns
    with Meter(target.pid) as meter:
        end = clock() + int(seconds * 1e9)
        for lane in lanes:
            lane.sent_ns = clock()
            lane.socket.sendall(lane.requests)
        busy = len(lanes)
        while busy:
            events = poll.poll(POLL_SECONDS_MAX)
            if not events:
                raise BenchError(f"no answer within {POLL_SECONDS_MAX:.0f} s")
            for handle, _ in events:
                lane = by_handle[handle]
                count = lane.socket.recv_into(lane.view[lane.received :])
                if not count:
                    raise ConnectionError("the broker closed the connection")
                lane.received += count
                if lane.received < len(lane.buffer):
                    continue
                lane.check()
                lane.received = 0
                now = clock()
                latencies.append(now - lane.sent_ns)
                if now < end:
                    lane.sent_ns = now
                    lane.socket.send(lane.requests)
                else:
                    busy -= 1
    poll.close()
    return meter.figures(requests=len(latencies) * depth) | latency_figures(latencies)
