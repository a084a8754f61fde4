"""Worker threads, time slices, and large requests that must not block the event loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from inspect import iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.long_requests import FieldPath, LongRequest, Maker, Naming, World, long_requests, served_apis
from tests.unit.broker.test_metadata_poller import FakeMembership, settle
from tests.unit.broker.whole_broker import Client, Steps, WholeBroker, count_steps, run_counting, with_whole_broker

from ottla.base import tasks
from ottla.base.security import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from ottla.broker.authorization import follow_acls
from ottla.broker.cluster.forwarding import encode_host, encode_principal
from ottla.broker.cluster.metadata_poller import MetadataPoller
from ottla.broker.coordinator_service.coordinators import Coordinators
from ottla.broker.handlers.create_acls import ACLS_PER_CHANGE_MAX
from ottla.broker.handlers.table import APIS
from ottla.broker.offload import Workers
from ottla.broker.served_api import ServedApi
from ottla.controller.cluster.deltas import snapshot
from ottla.controller.cluster.encoded_deltas import encode_answer
from ottla.controller.cluster.feed import Feed
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.protocol.apis import ALL_APIS, Api
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.inter_broker import ClusterPollResponse, EnvelopeRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.protocol.schema import types_of
from ottla.security.acls import AccessControlEntry, ResourcePattern
from ottla.security.authorizer import Authorizer

SECONDS_MAX = 60


class Gate:
    """Work that blocks until it is released, and counts concurrent entries."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def work(self) -> None:
        self.entered.release()
        assert self.open.wait(SECONDS_MAX)

    def expect(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=SECONDS_MAX)
        assert not self.entered.acquire(blocking=False), "more concurrent work than the thread limit"


def test_concurrent_work_never_exceeds_the_thread_limit() -> None:
    workers, gate = Workers(2), Gate()
    futures = [workers.submit(gate.work) for _ in range(5)]
    gate.expect(2)
    assert repr(workers) == "<Workers 2 busy of 2, 3 waiting>"
    workers.limit(4)
    gate.expect(2)
    gate.open.set()
    assert not wait(futures, SECONDS_MAX).not_done
    workers.shutdown()


def test_a_lower_limit_delays_later_work() -> None:
    workers, first, second = Workers(3), Gate(), Gate()
    futures = [workers.submit(first.work) for _ in range(3)]
    first.expect(3)
    workers.limit(1)
    futures += [workers.submit(second.work) for _ in range(2)]
    first.open.set()
    second.expect(1)
    second.open.set()
    assert not wait(futures, SECONDS_MAX).not_done
    workers.shutdown()


def test_results_and_errors_are_returned() -> None:
    workers = Workers(1)
    assert workers.submit(divmod, 7, 2).result(SECONDS_MAX) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result(SECONDS_MAX)
    workers.shutdown()


def test_a_shutdown_finishes_everything_that_was_submitted() -> None:
    workers = Workers(1)
    done: list[int] = []
    futures = [workers.submit(done.append, number) for number in range(1000)]
    workers.shutdown()
    assert len(done) == 1000
    assert all(future.done() for future in futures)


def test_cancelled_work_does_not_run() -> None:
    workers, gate = Workers(1), Gate()
    first = workers.submit(gate.work)
    gate.expect(1)
    second = workers.submit(gate.work)
    assert second.cancel()
    gate.open.set()
    first.result(SECONDS_MAX)
    workers.shutdown()
    assert not gate.entered.acquire(blocking=False)


# ---- tens of thousands of ACLs are created, described and deleted without blocking other clients

MANY = 8_000
ROUND_STEPS_MAX = 40_000  # ten milliseconds
DESCRIBE, CREATE, DELETE = 29, 30, 31


def creation(number: int) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=f"topic-{number}",
        resource_pattern_type=(PatternType.LITERAL, PatternType.PREFIXED)[number % 2],
        principal=f"User:u{number % 100}",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def test_many_acls_block_no_client(tmp_path: Path) -> None:
    every = {"resource_type_filter": ResourceType.ANY, "pattern_type_filter": PatternType.ANY}
    every |= {"operation": Operation.ANY, "permission_type": Permission.ANY}

    async def play(broker: WholeBroker) -> None:
        authorizer = broker.parts.authorizer = Authorizer({}, [ANONYMOUS])
        follow_acls(broker.parts.node.images, authorizer)
        changes: list[int] = []  # between consecutive images: every broker of a cluster must apply them
        broker.parts.node.images.add_listener(lambda old, new: changes.append(len(new.changed_acls_since(old))))
        client = broker.connect()

        async def steps_of(request: object, key: int) -> Steps:
            client.write(request, key, 3)
            return await count_steps(client.answer())

        def may(number: int) -> bool:
            who = f"User:u{number % 100}"
            return authorizer.is_granted(who, "10.0.0.1", Operation.READ, ResourceType.TOPIC, f"topic-{number}")

        found = {
            "create": await steps_of(CreateAclsRequest(creations=[creation(number) for number in range(MANY)]), CREATE)
        }
        assert len(broker.parts.image.acls) == MANY
        assert may(MANY - 1), "it is in force as soon as the response is sent"
        found["describe"] = await steps_of(DescribeAclsRequest(**every), DESCRIBE)
        found["delete"] = await steps_of(DeleteAclsRequest(filters=[DeleteAclsFilter(**every)]), DELETE)
        assert not broker.parts.image.acls
        assert not may(MANY - 2)
        assert (sum(changes), max(changes)) == (2 * MANY, ACLS_PER_CHANGE_MAX)
        longest = {name: steps.longest_round for name, steps in found.items()}
        assert max(longest.values()) <= ROUND_STEPS_MAX, f"{longest} steps at a time"

    with_whole_broker(tmp_path, APIS, play)


# ---- in a cluster


def many_rules(**changed: Operation) -> MetadataImage:
    """As in a controller; `changed` names resources with a different ACL."""
    entries = frozenset({AccessControlEntry("User:u", "*", Operation.READ, Permission.ALLOW)})
    rules = {ResourcePattern(ResourceType.TOPIC, f"t{number}"): entries for number in range(MANY)}
    for name, operation in changed.items():
        entry = AccessControlEntry("User:u", "*", operation, Permission.ALLOW)
        rules[ResourcePattern(ResourceType.TOPIC, name)] = frozenset({entry})
    image = MetadataImage(cluster_id="c", controller_id=1, controller_epoch=5).with_acls(rules)
    return image.with_quota_configs({f"clients/c{number}": {"producer_byte_rate": "9"} for number in range(MANY)})


def test_a_controller_sends_a_large_snapshot_in_slices() -> None:
    async def scene() -> None:
        feed, image = Feed(), many_rules()
        feed.begin(image, 5)
        polls = [tasks.spawn_awaited(feed.poll(number, 4, 17, 0), "a poll") for number in range(3)]
        steps = await count_steps(asyncio.wait(polls))
        told = [delta for poll in polls for delta in poll.result()]
        assert [(each.is_snapshot, each.sequence) for each in told] == [(True, 0)] * 3
        assert all(each is told[0] for each in told), "it is encoded once for all brokers"
        answer = encode_answer(ClusterPollResponse(controller_epoch=5), [told[0].body], 1)
        (delta,) = decode_whole(ClusterPollResponse, 1, memoryview(answer.body)).deltas
        assert len(delta.acls) == MANY
        assert steps.longest_round <= ROUND_STEPS_MAX, f"{steps.longest_round} steps at a time"

    run_counting(scene())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_broker_applies_a_large_snapshot_in_slices(is_first: bool) -> None:
    """At its start, and after a change of controllers: then most is unchanged and costs nothing."""

    async def scene() -> None:
        images = MetadataCache()
        before = many_rules(t7=Operation.WRITE)
        if not is_first:
            images.publish(before)
        authorizer = Authorizer(before.acls if not is_first else {})
        follow_acls(images, authorizer)
        membership = cast("Any", FakeMembership(images))
        polls = MetadataPoller(membership, images, cast("Any", None), settle)
        answer = ClusterPollResponse(controller_epoch=6, deltas=[snapshot(many_rules(t8=Operation.DELETE), 3)])
        steps = await count_steps(polls._apply(answer))
        assert len(images.image.acls) == MANY
        for name, operation in (("t7", Operation.READ), ("t8", Operation.DELETE), ("t9", Operation.READ)):
            assert authorizer.is_granted("User:u", "h", operation, ResourceType.TOPIC, name)
        assert not authorizer.is_granted("User:u", "h", Operation.WRITE, ResourceType.TOPIC, "t7")
        assert steps.longest_round <= ROUND_STEPS_MAX, f"{steps.longest_round} steps at a time"
        if not is_first:
            same = ResourcePattern(ResourceType.TOPIC, "t9")
            assert images.image.acls[same] is before.acls[same]
            changed = {pattern.name for pattern in images.image.changed_acls_since(before)}
            assert (changed, authorizer.is_fully_indexed) == ({"t7", "t8"}, True)
            assert images.image.quota_configs is before.quota_configs
            assert not images.image.changed_quotas_since(before)

    run_counting(scene())


def test_changes_during_the_decoding_of_a_snapshot_are_kept() -> None:
    """For example, the broker has become the controller meanwhile."""

    async def scene() -> None:
        images = MetadataCache()
        polls = MetadataPoller(cast("Any", FakeMembership(images)), images, cast("Any", None), settle)
        answer = ClusterPollResponse(controller_epoch=6, deltas=[snapshot(many_rules(), 3)])
        taking = tasks.spawn_awaited(polls._apply(answer), "an answer")
        await asyncio.sleep(0)
        newer = MetadataImage(cluster_id="c", controller_id=2, controller_epoch=7)
        images.publish(newer)
        assert await taking
        assert images.image is newer
        assert polls._sequence == -1, "it polls again"

    run_counting(scene())


# ---- large valid requests: linear work, and no long iteration of the loop

FEW, TIMES = 300, 4
GROWTH_MAX = 1.4  # so many times as many entries may cost GROWTH_MAX times as much work, and …
BESIDE = 10_000  # … so many additional steps: a worker decodes and frees the larger one
TOPICS, PARTITIONS = 20, 40
PRODUCE, FETCH, ENVELOPE = 0, 1, 58
VERIFIED = 11
MANY_ROWS = 16_000
COLLECTED_MAX = 10_000  # objects that a garbage collection visits: a millisecond or two
VERY_LONG = [
    (1, 17, ("topics",)),
    (1, 17, ("topics", "partitions")),
    (9, 7, ("topics",)),
    (9, 10, ("groups",)),
    (24, 3, ("v3_and_below_topics",)),
    (24, 3, ("v3_and_below_topics", "partitions")),
    (24, 5, ("transactions",)),
    (24, 5, ("transactions", "topics")),
    (27, 2, ("markers",)),
]
EACH = pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)


class CountedText(str):
    """A name of a request whose comparisons count as steps, which reveals linear searches."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return str.__hash__(self)


class CountedNumber(int):
    """The same for partition indexes."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return int.__hash__(self)


@EACH
def test_work_is_linear_in_the_size_of_the_request(tmp_path: Path, api: Api) -> None:
    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        client = broker.connect()
        for few, many in pairs(api, world):
            await client.ask(few.request, api.key, few.version)  # compiles codecs, creates groups
            small = await steps_of(client, few)
            large = await steps_of(client, many)
            assert large.total <= GROWTH_MAX * TIMES * small.total + BESIDE, f"{many.label}: {small.total} steps"
            assert large.longest_round <= ROUND_STEPS_MAX, f"{many.label}: {large.longest_round} steps at a time"

    with_whole_broker(tmp_path, tuple(counting(row) for row in APIS), play)


@pytest.mark.parametrize(("key", "version", "path"), VERY_LONG)
def test_many_thousand_entries_block_no_client(tmp_path: Path, key: int, version: int, path: FieldPath) -> None:
    """Costs that are hardly visible with a thousand entries. Garbage collections, which stop all threads, must not
    visit them.
    """
    looked_at = [0]

    def note(phase: str, _: object) -> None:
        looked_at.append(gc.get_count()[0] if phase == "start" else 0)

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        client = broker.connect()
        long = long_request(key, version, path, MANY_ROWS, world)
        gc.collect()
        gc.callbacks.append(note)
        try:
            steps = await steps_of(client, long)
        finally:
            gc.callbacks.remove(note)
        assert steps.longest_round <= ROUND_STEPS_MAX, f"{long.label}: {steps.longest_round} steps at a time"
        assert max(looked_at) <= COLLECTED_MAX, f"{long.label}: {max(looked_at)} objects"
        assert gc.isenabled()

    with_whole_broker(tmp_path, APIS, play)


PRODUCED = 6_000


def produce_of(batch: bytes, transactional_id: str | None) -> ProduceRequest:
    rows = [PartitionProduceData(index=index % PARTITIONS, records=memoryview(batch)) for index in range(PRODUCED)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="flushed", partition_data=rows)],
    )


async def with_flushed_topic(broker: WholeBroker) -> World:
    """A topic whose records are flushed before they are acknowledged."""
    world = await world_of(broker)
    await broker.parts.controller.create_topics(
        [NewTopic("flushed", PARTITIONS, 1, configs=(("flush.messages", "1"),))]
    )
    await broker.parts.publisher.wait_until_applied()
    return world


def test_a_delayed_produce_of_thousands_of_rows_blocks_no_client(tmp_path: Path) -> None:
    async def play(broker: WholeBroker) -> None:
        world = await with_flushed_topic(broker)
        client = broker.connect()
        client.write(produce_of(world.records, None), PRODUCE, 12)
        began = broker.parts.clock.monotonic_ms()
        steps = await count_steps(client.answer())
        assert steps.longest_round <= ROUND_STEPS_MAX
        assert broker.parts.clock.monotonic_ms() - began < 15_000, "it timed out although all rows were done"

    with_whole_broker(tmp_path, APIS, play)


@pytest.mark.parametrize("version", [11, 12])
def test_a_transactional_produce_of_thousands_of_rows_blocks_no_client(tmp_path: Path, version: int) -> None:
    async def play(broker: WholeBroker) -> None:
        await with_flushed_topic(broker)
        client = broker.connect()
        coordinators: Coordinators = broker.parts.coordinators
        await client.ask(InitProducerIdRequest(transactional_id="long", transaction_timeout_ms=60_000), 22, 4)
        who = coordinators.transactions.shard("long").machine.transactions["long"]
        record = Record(0, broker.parts.clock.now_ms(), None, b"value", ())
        batch = build_batch(
            [record], producer_id=who.producer_id, producer_epoch=who.producer_epoch, base_sequence=0,
            is_transactional=True,
        )  # fmt: skip
        client.write(produce_of(bytes(batch), "long"), PRODUCE, version)
        steps = await count_steps(client.answer())
        assert steps.longest_round <= ROUND_STEPS_MAX
        partitions = [broker.parts.replicas.get("flushed", index) for index in range(PARTITIONS)]
        written = [partition.log.end_offset for partition in partitions if partition is not None]
        assert written == [0 if version == VERIFIED else 1] * PARTITIONS  # not added to the transaction before

    with_whole_broker(tmp_path, APIS, play)


def fetch_of(
    topic_id: UUID, count: int, session_id: int = 0, epoch: int = -1, spread: int = PARTITIONS
) -> FetchRequest:
    rows = [FetchPartition(partition=n % spread, fetch_offset=0, partition_max_bytes=1 << 10) for n in range(count)]
    topics = [FetchTopic(topic_id=topic_id, partitions=rows)] if rows else []
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=50 << 20, session_id=session_id, session_epoch=epoch, topics=topics
    )


def test_a_fetch_with_records_in_thousands_of_partitions_blocks_no_client(tmp_path: Path) -> None:
    """Regression: all ranges were copied into the response, or released, in one callback."""

    async def play(broker: WholeBroker) -> None:
        world = await with_flushed_topic(broker)
        topic_id = broker.parts.image.topics["flushed"].topic_id
        client = broker.connect()
        await client.ask(produce_of(world.records, None), PRODUCE, 12)
        for max_wait_ms, min_bytes in ((0, 0), (10, 49 << 20)):
            request = fetch_of(topic_id, MANY_ROWS)
            request.max_wait_ms, request.min_bytes = max_wait_ms, min_bytes
            client.write(request, FETCH, 17)
            steps = await count_steps(client.answer())
            assert client.wire.received_bytes > MANY_ROWS * len(world.records)
            assert steps.longest_round <= ROUND_STEPS_MAX, f"{steps.longest_round} steps at a time"

    with_whole_broker(tmp_path, APIS, play)


def test_a_session_of_thousands_of_partitions_blocks_no_client(tmp_path: Path) -> None:
    """At its start, when all partitions are named again, when none is, and when they are forgotten."""

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        topic_id = world.wide[1]
        client = broker.connect()
        sessions = broker.parts.fetch_sessions
        forgotten = [ForgottenTopic(topic_id=topic_id, partitions=list(range(MANY_ROWS)))]
        for epoch, count, forgets in ((0, MANY_ROWS, False), (1, MANY_ROWS, False), (2, 0, False), (3, 0, True)):
            session_id = next(iter(sessions._sessions), 0)
            request = fetch_of(topic_id, count, session_id, epoch, spread=MANY_ROWS)
            request.forgotten_topics_data = forgotten if forgets else []
            client.write(request, FETCH, 17)
            steps = await count_steps(client.answer())
            assert sessions.partition_count == (0 if forgets else MANY_ROWS)
            assert steps.longest_round <= ROUND_STEPS_MAX, f"epoch {epoch}: {steps.longest_round} steps at a time"
        assert len(sessions) == 0

    with_whole_broker(tmp_path, APIS, play)


@pytest.mark.parametrize("key", [19, 20, 37, 57])
def test_a_large_request_in_an_envelope_blocks_no_client(tmp_path: Path, key: int) -> None:
    """As forwarded by a broker that is not the controller."""

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        controller: Any = SimpleNamespace(is_controller=True)
        broker.parts.membership = controller
        client = broker.connect()
        for long in long_requests(ALL_APIS[key], MANY_ROWS, world):
            if not (long.is_array and long.version == ALL_APIS[key].max_version and long.naming is Naming.UNKNOWN):
                continue
            header = encode_request_header(key, long.version, 1, "long")
            envelope = EnvelopeRequest(
                request_data=header + bytes(encode(long.request, long.version)),
                request_principal=encode_principal("User:ANONYMOUS"),
                client_host_address=encode_host("127.0.0.1"),
            )
            await asyncio.sleep(1)
            client.write(envelope, ENVELOPE, 0)
            steps = await count_steps(client.answer())
            assert steps.longest_round <= ROUND_STEPS_MAX, f"{long.label}: {steps.longest_round} steps at a time"

    with_whole_broker(tmp_path, tuple(row._replace(is_inter_broker=False) for row in APIS), play)


@pytest.mark.parametrize(("key", "path"), [(15, ("groups",)), (69, ("group_ids",))])
def test_a_repeatedly_named_group_is_described_once(tmp_path: Path, key: int, path: FieldPath) -> None:
    """It may be large: a request of 25 KB returned 164 MB."""

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        client = broker.connect()
        api = ALL_APIS[key]
        once, often = (
            Maker(api.max_version, path, Naming.REPEATED, count, world).make(api.request) for count in (1, FEW)
        )
        size = await client.ask(once, key, api.max_version)
        assert await client.ask(often, key, api.max_version) == size

    with_whole_broker(tmp_path, APIS, play)


def long_request(key: int, version: int, path: FieldPath, count: int, world: World) -> LongRequest:
    """With names that do not exist."""
    long = LongRequest(ALL_APIS[key], version, path, Naming.UNKNOWN, count, world)
    assert long.request  # built before steps are counted
    return long


async def steps_of(client: Client, long: LongRequest) -> Steps:
    await asyncio.sleep(1)  # a worker frees the previous request
    client.write(long.request, long.api.key, long.version)
    return await count_steps(client.answer())


def pairs(api: Api, world: World) -> Iterator[tuple[LongRequest, LongRequest]]:
    return zip(long_requests(api, FEW, world), long_requests(api, FEW * TIMES, world), strict=True)


async def world_of(broker: WholeBroker) -> World:
    names = [f"long-{number}" for number in range(TOPICS)]
    await broker.create_topics({**dict.fromkeys(names, 1), "wide": PARTITIONS})
    coordinators: Coordinators = broker.parts.coordinators
    for internal in (coordinators.internal_topics.offsets(), coordinators.internal_topics.transactions()):
        await coordinators.ensure_topic(internal)
    topics = broker.parts.image.topics
    now_ms = broker.parts.clock.now_ms()
    return World(
        [(name, topics[name].topic_id) for name in names],
        ("wide", topics["wide"].topic_id),
        PARTITIONS,
        records=bytes(build_batch([Record(0, now_ms, None, b"value", ())])),
    )


def counting(row: ServedApi) -> ServedApi:
    """The same API; its handler gets names and numbers with counted comparisons."""
    handle = row.handle

    async def later(request: Any, context: Any) -> Any:
        mark(request)
        return await handle(request, context)

    def now(request: Any, context: Any) -> Any:
        mark(request)
        return handle(request, context)

    return row._replace(handle=later if iscoroutinefunction(handle) else now)


def mark(request: Any) -> None:
    """Excluded from the counts."""
    counter = sys.getprofile()
    sys.setprofile(None)
    mark_fields(request)
    sys.setprofile(counter)


def mark_fields(message: Any) -> None:
    for name, kind in types_of(type(message)).items():
        value = getattr(message, name)
        if isinstance(value, list):
            if kind.array_item.kind == "struct":
                for row in value:
                    mark_fields(row)
            else:
                setattr(message, name, [marked(item) for item in value])
        else:
            setattr(message, name, marked(value))


def marked(value: Any) -> Any:
    if type(value) is str:
        return CountedText(value)
    return CountedNumber(value) if type(value) is int else value
