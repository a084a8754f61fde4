"""`python -m bench.controller`: what a controller costs, with up to 1,000,000 partitions on up to 1,000 brokers.

Brokers and the store's disks are simulated (played_cluster.py, played_store.py); controller, watches, feed and deltas
are ottla's own. `--zookeeper N` does one size in the real ZooKeeper. Each size runs in its own process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import time
from asyncio import events
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import controller_zookeeper
from bench.played_cluster import POLL_VERSION, Candidate, PlayedBroker, PlayedCluster
from bench.played_store import PlayedStore
from ottla.base.clock import SystemClock
from ottla.base.gc_pause import configure_collector
from ottla.base.names import TopicPartition
from ottla.broker.cluster.metadata_poller import apply_offloaded
from ottla.broker.encoded_topics_cache import EncodedTopicsCache
from ottla.broker.handlers.metadata import TOPICS_PER_SLICE
from ottla.broker.offload import chunks
from ottla.controller.cluster.deltas import Place
from ottla.controller.decisions.decision import Decision, partition_operations
from ottla.controller.decisions.elect_leaders import ElectionType, decide_elections
from ottla.controller.decisions.isr_changes import ANY_BROKER_EPOCH, IsrChange
from ottla.controller.decisions.topic_changes import NewPartitions, NewTopic
from ottla.controller.image import MetadataImage
from ottla.protocol.codec import decode_response
from ottla.protocol.messages.inter_broker import ClusterPollResponse

QUICK = ((10_000, 10), (20_000, 20), (100_000, 100))
FULL = tuple((partitions, brokers) for partitions in (10_000, 100_000, 1_000_000) for brokers in (10, 100, 1_000))
TOPIC_PARTITIONS, REPLICAS = 10, 3
METADATA_VERSION = 12
CREATED_AT_ONCE = 500  # topics
EVENTS = 60  # of each kind without polling brokers; fewer with them
TOLD_EVENTS = 10
Event = Callable[[int], Awaitable[Any]]


class Loop:
    """The longest callback of the event loop since the last call, in ms of CPU time, which excludes other processes."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._run = run = events.Handle._run

        def timed(handle: events.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest_ms = max(self.longest_ms, 1000 * (time.thread_time() - began))

        events.Handle._run = timed  # type: ignore[method-assign]

    def end(self) -> None:
        events.Handle._run = self._run  # type: ignore[method-assign]

    def take_ms(self) -> float:
        longest, self.longest_ms = self.longest_ms, 0.0
        return round(longest, 1)


class Meter:
    """CPU of this process without the simulated store, wall time, and the longest callback."""

    def __init__(self, cluster: PlayedCluster, loop: Loop) -> None:
        self.cluster = cluster
        self._loop = loop
        self.begin()

    def begin(self) -> None:
        self._loop.take_ms()
        self._store, self._written = self.cluster.ensemble.seconds, self.cluster.ensemble.written
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def end(self, count: int = 1) -> dict[str, float]:
        cpu = time.process_time() - self._cpu - (self.cluster.ensemble.seconds - self._store)
        wall = time.perf_counter() - self._wall
        return {
            "cpu_ms": round(1000 * cpu / count, 3),
            "wall_ms": round(1000 * wall / count, 3),
            "writes": round((self.cluster.ensemble.written - self._written) / count, 1),
            "longest_callback_ms": self._loop.take_ms(),
        }


async def measure(partitions: int, brokers: int) -> dict[str, Any]:
    """All figures of one size."""
    loop = Loop()
    cluster = PlayedCluster(brokers)
    await cluster.start()
    meter = Meter(cluster, loop)
    found: dict[str, Any] = {"partitions": partitions, "brokers": brokers}

    def note(**figures: Any) -> None:
        """Also printed immediately: the largest sizes take minutes."""
        named = {name.replace("__", "-").replace("_", " "): value for name, value in figures.items()}
        found.update(named)
        print(json.dumps(named), file=sys.stderr, flush=True)

    note(filled=await fill(cluster, partitions, meter))
    gc.collect()
    configure_collector()
    await settle(cluster)
    note(idle=await idle(meter))
    note(**await measure_events(cluster, meter, EVENTS))
    cluster.begin_polls()
    await asyncio.sleep(0.1)
    told = {name: await tell(cluster, event, meter) for name, event in events_of(cluster, start=EVENTS).items()}
    note(told=told, fail__over=await fail_over(cluster, meter))
    cluster.end_polls()
    note(snapshot=await join(cluster, meter), clients=await ask_all(cluster.controller.image, meter))
    note(new_controller=await take_over(cluster, meter))
    note(
        peak=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        memory=memory_of(cluster.controller.image),
    )
    await cluster.stop()
    return found


async def measure_events(cluster: PlayedCluster, meter: Meter, count: int) -> dict[str, Any]:
    return {name: await repeat(event, meter, count) for name, event in events_of(cluster).items()}


async def fill(cluster: PlayedCluster, partitions: int, meter: Meter) -> dict[str, float]:
    meter.begin()
    count = partitions // TOPIC_PARTITIONS
    for start in range(0, count, CREATED_AT_ONCE):
        numbers = range(start, min(start + CREATED_AT_ONCE, count))
        wanted = [NewTopic(f"topic-{number:06}", TOPIC_PARTITIONS, REPLICAS) for number in numbers]
        results = await create(cluster, wanted)
        assert all(not result.error for result in results)
    return meter.end(partitions)


async def create(cluster: PlayedCluster, wanted: list[NewTopic]) -> Any:
    """No broker polls yet, so the controller waits for none."""
    service = cluster.controller.controller
    service._await_acknowledged = no_broker  # type: ignore[method-assign]
    try:
        return await service.create_topics(wanted)
    finally:
        del service._await_acknowledged


async def no_broker(_: int) -> None: ...


async def settle(cluster: PlayedCluster) -> None:
    """Wait until the controller has processed all its own writes."""
    chores = cluster.controller.membership.watches._work_queue
    while chores._due:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


async def idle(meter: Meter) -> dict[str, float]:
    """The cost of an idle controller, for a second."""
    meter.begin()
    seconds = 6
    await asyncio.sleep(seconds)
    return meter.end(seconds)


def events_of(cluster: PlayedCluster, start: int = 0) -> dict[str, Event]:
    """Each takes a number and uses another topic for every number."""
    service = cluster.controller.controller

    def name(number: int) -> str:
        return f"topic-{start + number:06}"

    async def created(number: int) -> None:
        await create(cluster, [NewTopic(f"new-{start + number}", TOPIC_PARTITIONS, REPLICAS)])

    async def isr(number: int) -> None:
        topic = service.image.topics[name(number)]
        state = topic.partitions[0]
        kept = tuple((broker, ANY_BROKER_EPOCH) for broker in state.isr if broker in (state.leader, *state.isr[:2]))
        change = IsrChange(topic.topic_id, 0, state.leader_epoch, state.partition_epoch, kept)
        leader = service.image.brokers[state.leader]
        (answer,) = await service.alter_partitions(leader.id, leader.epoch, [change])
        assert answer.partition is not None, answer
        assert len(answer.partition.isr) == 2, answer

    async def leader(number: int) -> None:
        partition = TopicPartition(name(number), 1)
        results = await service.change(
            lambda image: decide_elections(image, ElectionType.PREFERRED, [partition], service.liveness, service.rules),
            is_urgent=True,
        )
        assert not results[0].error, results

    async def grown(number: int) -> None:
        service._await_acknowledged = no_broker  # type: ignore[method-assign]
        (result,) = await service.create_partitions([NewPartitions(name(number), TOPIC_PARTITIONS + 1)])
        del service._await_acknowledged
        assert not result.error

    return {"topic created": created, "ISR change": isr, "leader change": leader, "partition added": grown}


async def stray(cluster: PlayedCluster, names: list[str]) -> None:
    """Make the second replica the leader, so that an election is needed."""

    def decide(image: MetadataImage) -> Decision[None]:
        changes = {}
        for name in names:
            old = image.topics[name].partitions[1]
            changes[TopicPartition(name, 1)] = old._replace(leader=old.isr[1], leader_epoch=old.leader_epoch + 1)
        return Decision(*partition_operations(image, changes), None)

    await cluster.controller.controller.change(decide, is_urgent=True)


async def repeat(event: Event, meter: Meter, count: int) -> dict[str, float]:
    if event.__name__ == "leader":
        names = [f"topic-{number:06}" for number in range(count + TOLD_EVENTS)]
        await stray(meter.cluster, [name for name in names if name in meter.cluster.controller.image.topics])
    meter.begin()
    for number in range(count):
        await event(number)
    return meter.end(count)


async def tell(cluster: PlayedCluster, event: Event, meter: Meter) -> dict[str, float]:
    """The same, until every broker has the change."""
    feed = cluster.controller.controller.feed
    sent = sum(broker.bytes for broker in cluster.brokers.values())
    meter.begin()
    for number in range(TOLD_EVENTS):
        await event(number)
        await feed.acknowledged(feed.sequence, 60)
    found = meter.end(TOLD_EVENTS)
    sent = sum(broker.bytes for broker in cluster.brokers.values()) - sent
    return {**found, "bytes_per_broker": round(sent / TOLD_EVENTS / len(cluster.brokers), 1)}


async def fail_over(cluster: PlayedCluster, meter: Meter) -> dict[str, float]:
    """A broker fails: until its partitions have new leaders and all brokers know them."""
    number = cluster.size // 2
    image = cluster.controller.image
    led = sum(state.leader == number for topic in image.topics.values() for state in topic.partitions)
    cluster.brokers.pop(number).stop()
    sent = sum(broker.bytes for broker in cluster.brokers.values())
    feed = cluster.controller.controller.feed
    await asyncio.sleep(0)  # counting is not part of the controller
    meter.begin()
    cluster.remove(number)
    began = time.perf_counter()
    await cluster.until(lambda: number not in cluster.controller.image.brokers)
    decided = time.perf_counter() - began
    await feed.acknowledged(feed.sequence, 60)
    found = meter.end()
    sent = sum(broker.bytes for broker in cluster.brokers.values()) - sent
    size = {"led": led, "decided_ms": round(1000 * decided, 1), "bytes_per_broker": sent // len(cluster.brokers)}
    cluster.register(number)
    await cluster.until(lambda: number in cluster.controller.image.brokers)
    return {**found, **size}


async def join(cluster: PlayedCluster, meter: Meter) -> dict[str, float]:
    """A new broker: the metadata sent to it, and its own cost."""
    number, broker = next((id_, each) for id_, each in cluster.controller.image.brokers.items() if id_ != 1)
    joining = PlayedBroker(number, broker.epoch, cluster.controller)
    joining.place = (-1, -1)
    meter.begin()
    data = await joining.ask()
    made = meter.end()
    meter.begin()
    response, _ = await asyncio.to_thread(decode_response, ClusterPollResponse, POLL_VERSION, memoryview(data))
    image, _ = await asyncio.to_thread(apply_offloaded, MetadataImage(), Place(), response)
    taken = meter.end()
    assert len(image.topics) == len(cluster.controller.image.topics)
    return {"bytes": len(data), **made, "taken_cpu_ms": taken["cpu_ms"], "taken_wall_ms": taken["wall_ms"]}


async def ask_all(image: MetadataImage, meter: Meter) -> dict[str, float]:
    """Metadata of all topics for a client: the first request after a broker change, and the next."""
    kept = EncodedTopicsCache()
    times = []
    for _ in "ab":
        meter.begin()
        size = 0
        for some in chunks(list(image.topics.values()), TOPICS_PER_SLICE):
            size += sum(map(len, kept.encode_topics(image, "PLAINTEXT", METADATA_VERSION, some)))
            await asyncio.sleep(0)
        times.append(meter.end())
    first, again = times
    return {"bytes": size, **first, "again_cpu_ms": again["cpu_ms"]}


async def take_over(cluster: PlayedCluster, meter: Meter) -> dict[str, float]:
    """Another broker is elected: it reads the tree until it is ready. It has followed the previous controller."""
    old = cluster.controller
    new = Candidate(PlayedStore(cluster.ensemble, SystemClock()), cluster.size + 1)
    new.images.image = old.image
    await old.stop()
    gc.collect()
    before = resident_mb()
    meter.begin()
    await new.start()
    found = meter.end()
    cluster.controller = new
    await settle(cluster)
    found["longest_callback_ms"] = max(found["longest_callback_ms"], meter.end()["longest_callback_ms"])
    return {**found, "grown_mb": resident_mb() - before}


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def memory_of(image: MetadataImage) -> float:
    """The size of all objects in an image, each counted once."""
    seen: set[int] = set()
    total = 0
    left: list[Any] = [image.topics, image.topics_by_id, image.topic_configs, image.names_by_collision_key]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        left += gc.get_referents(each)
    return round(total / 2**20, 1)


def run_apart(partitions: int, brokers: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.controller", "--one", str(partitions), str(brokers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.controller", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all sizes up to 1,000,000 partitions and 1,000 brokers")
    parser.add_argument("--one", type=int, nargs=2, metavar=("PARTITIONS", "BROKERS"), help="one size, in this process")
    parser.add_argument("--zookeeper", type=int, metavar="PARTITIONS", help="one size in the real ZooKeeper instead")
    parser.add_argument("--from", dest="source", type=Path, help="draw the figures of a file, without measuring")
    parser.add_argument("--plots", type=Path, help="draw scale-*.svg into this folder")
    parser.add_argument("--output", type=Path, help="write the figures to a file, too")
    options = parser.parse_args()
    if options.zookeeper:
        print(json.dumps(controller_zookeeper.run(options.zookeeper), indent=1))
        return
    if options.one:
        print(json.dumps(asyncio.run(measure(*options.one))))
        return
    rows = json.loads(options.source.read_text()) if options.source else []
    for partitions, brokers in () if rows else FULL if options.full else QUICK:
        rows.append(run_apart(partitions, brokers))
        print(json.dumps(rows[-1]), flush=True)
    if options.plots is not None:
        from bench.scale_plots import write_scale_plots  # noqa: PLC0415 (a run without plots does not need it)

        write_scale_plots(rows, options.plots)
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
