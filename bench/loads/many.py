"""Many connections and many partitions: the time until all are served."""

import time

from bench import wire
from bench.batches import batch_of, payloads
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads import one_in_flight, small_requests
from bench.meter import Meter
from bench.procfs import memory
from bench.raw_client import Connection, Target, create_topics

SETTLE_SECONDS = 2.0


def connect(target: Target, count: int) -> Figures:
    """Open the connections and send ApiVersions on each: the time until all are answered, and the memory."""
    request = wire.api_versions_request()
    before = memory(target.pid)
    connections: list[Connection] = []
    with Meter(target.pid) as meter:
        for _ in range(count):
            connection = Connection(target)
            connection.send(request)
            connections.append(connection)
        for connection in connections:
            connection.receive()
    time.sleep(SETTLE_SECONDS)
    growth_mb = memory(target.pid).rss_mb - before.rss_mb
    for connection in connections:
        connection.close()
    return meter.figures(requests=count) | {"kb_per_connection": growth_mb * 1024 / count}


def create_partitions(target: Target, topics: dict[str, int]) -> Figures:
    """Creates topics and writes one record to each of their partitions: times, and growth of memory when idle again."""
    count = sum(topics.values())
    before = memory(target.pid)
    with Meter(target.pid) as meter:
        create_topics(target, topics)
        visible_s = time.perf_counter() - meter.started
        write_to_each(target, topics)
    time.sleep(SETTLE_SECONDS)
    after = memory(target.pid)
    return meter.figures(requests=count) | {
        "visible_s": visible_s,
        "kb_per_partition": (after.rss_mb - before.rss_mb) * 1024 / count,
        "files_per_partition": (after.files - before.files) / count,
    }


def make_partitions(target: Target, topics: dict[str, int], topics_at_once: int) -> None:
    """Creates topics, some with each request, and writes one record to each of their partitions."""
    names = list(topics)
    for first in range(0, len(names), topics_at_once):
        create_topics(target, {name: topics[name] for name in names[first : first + topics_at_once]})
    write_to_each(target, topics)


def write_to_each(target: Target, topics: dict[str, int]) -> None:
    batch = batch_of([payloads(100)[0]]).data
    with Connection(target) as connection:
        for topic, partitions in topics.items():
            for partition in range(partitions):
                connection.produce_first(wire.produce_request(topic, partition, batch), topic)


def cost_beside_idle_connections(
    target: Target, topic: str, partitions: int, idle: int, warmup_s: float, seconds: float
) -> dict[str, Figures]:
    """Cost of Produce and Fetch on one connection while so many others are open and silent."""
    request = wire.api_versions_request()
    connections = [Connection(target) for _ in range(idle)]
    for connection in connections:
        if not connection.call(request):
            raise BenchError("an idle connection got no answer")
    figures = {
        "produce": one_in_flight.produce(target, topic, partitions, 100, warmup_s, seconds),
        "fetch": one_in_flight.fetch(target, topic, partitions, warmup_s, seconds),
    }
    for connection in connections:
        connection.close()
    return figures


def busy_beside_idle(target: Target, topic: str, busy: int, idle: int, seconds: float) -> Figures:
    """Small requests on some connections, one in flight each, while many others are open and silent."""
    request = wire.api_versions_request()
    before = memory(target.pid)
    connections: list[Connection] = []
    for _ in range(idle):
        connections.append(Connection(target))
        if not connections[-1].call(request):
            raise BenchError("an idle connection got no answer")
    time.sleep(SETTLE_SECONDS)
    growth_mb = memory(target.pid).rss_mb - before.rss_mb
    small_requests.produce(target, topic, busy, 1, 100, 1.0)
    figures = small_requests.produce(target, topic, busy, 1, 100, seconds)
    for connection in connections:
        connection.close()
    return figures | {"kb_per_connection": growth_mb * 1024 / idle}
