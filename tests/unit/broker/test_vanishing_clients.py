"""Clients that go in the middle of something: nothing of them stays behind, whatever they have asked."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from long_requests import Maker, Naming, World, long_requests, served_apis, telling_versions
from ottla.base import tasks
from ottla.broker.handlers.table import APIS
from ottla.protocol.apis import Api
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.replication.partition import Partition
from unit.broker.test_long_requests import world_of
from unit.broker.whole_broker import Client, WholeBroker, with_whole_broker

EACH = pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
LONG = 1_100
FETCH, FETCH_BY_NAME = 1, 12
SETTLE_SECONDS = 60


@EACH
def test_half_a_request_leaves_nothing_behind(tmp_path: Path, api: Api) -> None:
    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        for version in telling_versions(api):
            client = broker.connect()
            client.write(small(api, version, world), api.key, version)
            del client.wire.to_broker[len(client.wire.to_broker) // 2 :]
            read_all(client)
            assert client.connection.own is not None, "half of a request is kept"
            await leave(broker, client)

    with_whole_broker(tmp_path, APIS, play)


@EACH
def test_who_goes_before_the_answer_leaves_nothing_behind(tmp_path: Path, api: Api) -> None:
    """While a long request is decoded, while a handler awaits something, while a request waits for others."""

    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        version = telling_versions(api)[-1]
        asked = [small(api, version, world)]
        asked += [long.request for long in long_requests(api, LONG, world) if long.version == version and long.is_array]
        for request in asked:
            for rounds in (0, 3):
                client = broker.connect()
                client.write(request, api.key, version)
                read_all(client)
                for _ in range(rounds):
                    await asyncio.sleep(0)
                await leave(broker, client)

    with_whole_broker(tmp_path, APIS, play)


@pytest.fixture(autouse=True)
def few_objects_to_look_at() -> Iterator[None]:
    """What earlier tests have left is not looked through each time that somebody asks who is still held."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("count", [1, 400])
def test_a_fetch_that_waits_forgets_its_partitions(tmp_path: Path, count: int) -> None:
    async def play(broker: WholeBroker) -> None:
        await broker.create_topics({"wide": count})
        rows = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000) for index in range(count)]
        topics = [FetchTopic(topic="wide", partitions=rows)]
        request = FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1_000, session_epoch=-1, topics=topics)
        client = broker.connect()
        client.write(request, FETCH, FETCH_BY_NAME)
        read_all(client)
        await asyncio.sleep(1)
        assert waiting_at(broker) == count
        await leave(broker, client)
        assert waiting_at(broker) == 0

    with_whole_broker(tmp_path, APIS, play)


def small(api: Api, version: int, world: World) -> object:
    return Maker(version, ("nothing",), Naming.EXISTING, 1, world).make(api.request)


def read_all(client: Client) -> None:
    while client.wire.to_broker and not client.connection.is_closed:
        client.connection.on_readable()


async def leave(broker: WholeBroker, client: Client) -> None:
    """The client goes, and all that it has asked for comes to its end."""
    failed = tasks.counts.failed
    client.connection.abandon("gone")
    await broker.dispatcher.finish(SETTLE_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)  # sessions and waits end
    connection = client.connection
    assert not connection.pending
    assert not connection.waiting
    assert connection.own is None
    left: weakref.ref[Any] = weakref.ref(client.wire)  # whoever holds the connection holds its wire; it may be compiled
    del connection, client.connection, client.wire
    gc.collect()
    assert left() is None, f"held by {gc.get_referrers(left())}"
    assert tasks.counts.failed == failed


def waiting_at(broker: WholeBroker) -> int:
    partitions: list[Partition] = list(broker.parts.replicas.partitions.values())
    return sum(len(partition._fetches or ()) for partition in partitions)
