"""The cost of one size in a real ZooKeeper: writes per second, bytes per partition, a new controller's reading."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

from bench.played_cluster import Candidate, registered
from ottla.base.clock import SystemClock
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, partition_operations
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import CreateNode
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.testing.zookeeper import ZooKeeperProcess

BROKERS, TOPIC_PARTITIONS, REPLICAS = 10, 10, 3
CREATED_AT_ONCE = 500  # topics
SINGLE_WRITES = 300
SESSION_MS = 30_000
FOUR_LETTERS = {"KAFKA_OPTS": "-Dzookeeper.4lw.commands.whitelist=mntr"}


def run(partitions: int) -> dict[str, Any]:
    with ZooKeeperProcess(environment=FOUR_LETTERS) as server:
        before = mntr(server.port)
        found = asyncio.run(measure(server.connect, partitions))
        after = mntr(server.port)
        for key, name in (("zk_znode_count", "nodes"), ("zk_approximate_data_size", "bytes")):
            found[f"{name}_per_partition"] = round((after[key] - before[key]) / partitions, 1)
        began = time.perf_counter()
        server.restart()  # it reads its snapshot and the transactions behind it, and writes a new one
        found["restart_s"] = round(time.perf_counter() - began, 2)
        sizes = [path.stat().st_size for path in Path(server.folder).rglob("snapshot.*")]
        found["snapshot_bytes_per_partition"] = round(max(sizes) / partitions, 1)
        found["log_bytes"] = sum(path.stat().st_size for path in Path(server.folder).rglob("log.*"))
    return {"partitions": partitions, "brokers": BROKERS, **found}


async def measure(connect: str, partitions: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    first = Candidate(ZooKeeperStore(connect, SESSION_MS, SystemClock()), 1)
    others = ZooKeeperStore(connect, SESSION_MS, SystemClock())
    await others.open()
    await first.start()
    for number in range(2, BROKERS + 1):
        data = tree.encode_broker(registered(number), 0)
        await others.multi([CreateNode(tree.broker_path(number), data, is_ephemeral=True)])
    while len(first.image.brokers) < BROKERS:
        await asyncio.sleep(0.01)
    hearing = asyncio.get_running_loop().create_task(be_heard(first))
    service = first.controller
    began = time.perf_counter()
    for start in range(0, partitions // TOPIC_PARTITIONS, CREATED_AT_ONCE):
        numbers = range(start, min(start + CREATED_AT_ONCE, partitions // TOPIC_PARTITIONS))
        wanted = [NewTopic(f"topic-{number:06}", TOPIC_PARTITIONS, REPLICAS) for number in numbers]
        assert all(not result.error for result in await service.create_topics(wanted))
    found["created_partitions_per_s"] = round(partitions / (time.perf_counter() - began))
    names = [TopicPartition(f"topic-{number:06}", 0) for number in range(partitions // TOPIC_PARTITIONS)]
    found["batched_writes_per_s"] = await write(first, [names])
    found["single_writes_per_s"] = await write(first, [[name] for name in names[:SINGLE_WRITES]])
    hearing.cancel()
    second = Candidate(ZooKeeperStore(connect, SESSION_MS, SystemClock()), BROKERS + 1)
    second.images.image = first.image
    began, cpu = time.perf_counter(), time.process_time()
    await first.stop()
    await second.start()
    found["new_controller_s"] = round(time.perf_counter() - began, 2)
    found["new_controller_cpu_s"] = round(time.process_time() - cpu, 2)
    await second.stop()
    await others.close()
    return found


async def write(candidate: Candidate, lots: list[list[TopicPartition]]) -> int:
    """State nodes written per second, in batches: the writes of a fail-over or of a leader's proposal."""

    def decide(image: MetadataImage, names: list[TopicPartition]) -> Decision[None]:
        states = {name: image.topics[name.topic].partitions[name.partition] for name in names}
        return Decision(*partition_operations(image, states), None)

    began = time.perf_counter()
    for names in lots:
        await candidate.controller.change(lambda image, names=names: decide(image, names), is_urgent=True)  # type: ignore[misc]
    return round(sum(map(len, lots)) / (time.perf_counter() - began))


async def be_heard(candidate: Candidate) -> None:
    """No broker polls, and none must expire: each reports at once that it has seen everything."""
    while True:
        feed = candidate.controller.feed
        for number, broker in candidate.image.brokers.items():
            candidate.controller.heartbeats.touch(number, broker.epoch, SystemClock().monotonic_ms())
            feed._note(number, feed.sequence)
        await asyncio.sleep(0.005)


def mntr(port: int) -> dict[str, int]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"mntr")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    rows = [line.split("\t") for line in text.splitlines()]
    return {row[0]: int(float(row[1])) for row in rows if len(row) == 2 and row[1].replace(".", "").isdigit()}
