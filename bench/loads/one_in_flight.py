"""One request at a time on one connection: the cost and the latency of a single answer."""

import time
from socket import MSG_WAITALL

from bench import wire
from bench.batches import batch_of, payloads
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.meter import Meter
from bench.raw_client import Connection, Target, check_produced


def produce(target: Target, topic: str, partitions: int, record_bytes: int, warmup_s: float, seconds: float) -> Figures:
    """Produce requests of one record (acks=all), round robin over the partitions."""
    batch = batch_of([payloads(record_bytes)[0]]).data
    requests = [wire.produce_request(topic, partition, batch) for partition in range(partitions)]
    with Connection(target) as connection:
        for request in requests:
            connection.produce_first(request, topic)
        _run(connection, target, requests, warmup_s)
        figures, answers = _run(connection, target, requests, seconds)
    for answer in answers:
        check_produced(answer, topic)
    return figures


def fetch(target: Target, topic: str, partitions: int, warmup_s: float, seconds: float) -> Figures:
    """Fetch requests without a session that find one small batch at offset 0, round robin over the partitions."""
    requests = [wire.fetch_request(topic, partition, 0, 1) for partition in range(partitions)]
    with Connection(target) as connection:
        _run(connection, target, requests, warmup_s)
        figures, answers = _run(connection, target, requests, seconds)
    for answer in answers:
        head = wire.read_fetch_head(answer, topic)
        if head.error or not head.records_bytes:
            raise BenchError(f"Fetch from {topic} was answered with error {head.error}, {head.records_bytes} bytes")
    return figures


def _run(
    connection: Connection, target: Target, requests: list[bytes], seconds: float
) -> tuple[Figures, list[bytearray]]:
    """Cycles through the requests until the time is up; returns the figures and the answers of the last cycle."""
    answers = [bytearray(4 + len(connection.call(request))) for request in requests]
    exchanges = list(zip(requests, answers, map(len, answers), strict=True))
    latencies: list[int] = []
    send, receive, clock, wait_all = (
        connection.socket.sendall,
        connection.socket.recv_into,
        time.perf_counter_ns,
        MSG_WAITALL,
    )
    with Meter(target.pid) as meter:
        now = clock()
        end = now + int(seconds * 1e9)
        while now < end or not latencies:
            for request, answer, size in exchanges:
                start = clock()
                send(request)
                if receive(answer, size, wait_all) != size:
                    raise BenchError("an answer is shorter than the one before")
                now = clock()
                latencies.append(now - start)
    bodies = [answer[4:] for answer in answers if int.from_bytes(answer[:4], "big") == len(answer) - 4]
    if len(bodies) < len(requests):
        raise BenchError("answers to the same request differ in size")
    return meter.figures(requests=len(latencies)) | latency_figures(latencies), bodies
