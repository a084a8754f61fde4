"""Whatever is long in a legal request: work grows with it and not faster, and nobody waits for the end of it."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from long_requests import FieldPath, LongRequest, Maker, Naming, World, long_requests, served_apis
from ottla.broker.cluster.forwarding import encode_host, encode_principal
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.handlers.table import APIS
from ottla.broker.served_api import ServedApi
from ottla.controller.decisions.machine import NewTopic
from ottla.protocol.apis import ALL_APIS, Api
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.layout import types_of
from ottla.protocol.messages.inter_broker import EnvelopeRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.transactions import InitProducerIdRequest
from unit.broker.whole_broker import Client, Steps, WholeBroker, count_steps, with_whole_broker

FEW, TIMES = 300, 4
GROWTH_MAX = 1.4  # times as many entries may cost so many times as much work, and …
BESIDE = 10_000  # … as many steps beside: only the larger one is decoded and freed by a worker
ROUND_STEPS_MAX = 40_000  # ten milliseconds
TOPICS, PARTITIONS = 20, 40
PRODUCE, ENVELOPE = 0, 58
VERIFIED = 11
MANY = 16_000
COLLECTED_MAX = 10_000  # objects that a collection looks at: a millisecond or two
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
    """A name of a request: to compare it is a step, so that a search through a list shows."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return str.__hash__(self)


class CountedNumber(int):
    """The same for partitions."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return int.__hash__(self)


@EACH
def test_work_grows_with_the_request_and_not_faster(tmp_path: Path, api: Api) -> None:
    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        client = broker.connect()
        for few, many in pairs(api, world):
            await client.ask(few.request, api.key, few.version)  # compiles codecs, makes groups
            small = await steps_of(client, few)
            large = await steps_of(client, many)
            assert large.total <= GROWTH_MAX * TIMES * small.total + BESIDE, f"{many.label}: {small.total} steps"
            assert large.longest_round <= ROUND_STEPS_MAX, f"{many.label}: {large.longest_round} steps at a time"

    with_whole_broker(tmp_path, tuple(counting(row) for row in APIS), play)


@pytest.mark.parametrize(("key", "version", "path"), VERY_LONG)
def test_nobody_waits_for_many_thousand_entries(tmp_path: Path, key: int, version: int, path: FieldPath) -> None:
    """What is hardly noticed with a thousand of them. No collection looks at them, either: it would stop everybody."""
    looked_at = [0]

    def note(phase: str, _: object) -> None:
        looked_at.append(gc.get_count()[0] if phase == "start" else 0)

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        client = broker.connect()
        long = long_request(key, version, path, MANY, world)
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
    """Whose records have to be on disk before they are acknowledged."""
    world = await world_of(broker)
    await broker.parts.controller.create_topics(
        [NewTopic("flushed", PARTITIONS, 1, configs=(("flush.messages", "1"),))]
    )
    await broker.parts.publisher.settled()
    return world


def test_a_produce_that_waits_for_thousands_of_rows_makes_nobody_wait(tmp_path: Path) -> None:
    async def play(broker: WholeBroker) -> None:
        world = await with_flushed_topic(broker)
        client = broker.connect()
        client.write(produce_of(world.records, None), PRODUCE, 12)
        began = broker.parts.clock.monotonic_ms()
        steps = await count_steps(client.answer())
        assert steps.longest_round <= ROUND_STEPS_MAX
        assert broker.parts.clock.monotonic_ms() - began < 15_000, "its time was up though all was done"

    with_whole_broker(tmp_path, APIS, play)


@pytest.mark.parametrize("version", [11, 12])
def test_nor_does_one_of_a_transaction(tmp_path: Path, version: int) -> None:
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
        assert written == [0 if version == VERIFIED else 1] * PARTITIONS  # nobody had added them to the transaction

    with_whole_broker(tmp_path, APIS, play)


@pytest.mark.parametrize("key", [19, 20, 37, 57])
def test_what_is_long_in_an_envelope_makes_nobody_wait_either(tmp_path: Path, key: int) -> None:
    """As sent by a broker that is not the controller."""

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        controller: Any = SimpleNamespace(is_controller=True)
        broker.parts.cluster = controller
        client = broker.connect()
        for long in long_requests(ALL_APIS[key], MANY, world):
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

    with_whole_broker(tmp_path, tuple(row._replace(is_between_brokers=False) for row in APIS), play)


@pytest.mark.parametrize(("key", "path"), [(15, ("groups",)), (69, ("group_ids",))])
def test_a_group_that_is_named_often_is_described_once(tmp_path: Path, key: int, path: FieldPath) -> None:
    """It may be large: 25 KB asked for 164 MB."""

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
    """With names of nothing that exists."""
    long = LongRequest(ALL_APIS[key], version, path, Naming.UNKNOWN, count, world)
    assert long.request  # made here, and not while somebody counts
    return long


async def steps_of(client: Client, long: LongRequest) -> Steps:
    await asyncio.sleep(1)  # a worker frees what was asked before
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
    """The same API; its handler gets names and numbers whose comparison counts."""
    handle = row.handle

    async def later(request: Any, context: Any) -> Any:
        mark(request)
        return await handle(request, context)

    def now(request: Any, context: Any) -> Any:
        mark(request)
        return handle(request, context)

    return row._replace(handle=later if iscoroutinefunction(handle) else now)


def mark(request: Any) -> None:
    """Not counted itself."""
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
