"""Disconnecting clients: whatever they have requested, no state is left."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.long_requests import Maker, Naming, World, long_requests, served_apis, telling_versions
from tests.unit.broker.test_offload import world_of
from tests.unit.broker.whole_broker import Client, WholeBroker, with_whole_broker

from ottla.base import tasks
from ottla.broker.handlers.table import APIS
from ottla.metrics.unsupported_requests import UnsupportedRequest
from ottla.network.close_reason import CloseReason
from ottla.protocol.apis import Api
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.replication.partition import Partition

EACH = pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
LONG = 1_100
FETCH, FETCH_BY_NAME = 1, 12
SETTLE_SECONDS = 60


@EACH
def test_a_partial_request_leaves_no_state(tmp_path: Path, api: Api) -> None:
    async def play(broker: WholeBroker) -> None:
        world = await world_of(broker)
        for version in telling_versions(api):
            client = broker.connect()
            client.write(small(api, version, world), api.key, version)
            del client.wire.to_broker[len(client.wire.to_broker) // 2 :]
            read_all(client)
            assert client.connection.frame_buffer is not None, "a partial request is buffered"
            await leave(broker, client)

    with_whole_broker(tmp_path, APIS, play)


@EACH
def test_a_client_that_disconnects_before_the_response_leaves_no_state(tmp_path: Path, api: Api) -> None:
    """While a large request is decoded, while a handler awaits, while a request waits for others."""

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
    """Freeze objects of earlier tests: the search for referrers must not visit them."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("count", [1, 400])
def test_a_waiting_fetch_releases_its_partitions(tmp_path: Path, count: int) -> None:
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
    """The client disconnects, and all of its requests end."""
    failed = tasks.counts.failed
    client.connection.abandon(CloseReason.CLIENT)
    await broker.dispatcher.wait_for_handlers(SETTLE_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)  # sessions and waits end
    connection = client.connection
    assert not connection.pending
    assert not connection.waiting_requests
    assert connection.frame_buffer is None
    left: weakref.ref[Any] = weakref.ref(client.wire)  # the connection, which may be compiled, references its wire
    del connection, client.connection, client.wire
    gc.collect()
    assert left() is None, f"held by {gc.get_referrers(left())}"
    assert tasks.counts.failed == failed


def waiting_at(broker: WholeBroker) -> int:
    partitions: list[Partition] = list(broker.parts.replicas.partitions.values())
    return sum(len(partition._fetch_waiters or ()) for partition in partitions)


# ---- unsupported versions: the connection is closed, and the log names the client

MINUTE = 60


def refused(broker: WholeBroker, key: int, version: int, client_id: str | None = "shop", software: str = "") -> Client:
    """A client that has sent only a header."""
    client = broker.connect()
    if software:
        client.connection.client.software_name, client.connection.client.software_version = software.split()
    header = encode_request_header(key, version, 1, client_id)
    client.wire.to_broker += len(header).to_bytes(4, "big") + header
    client.connection.on_readable()
    return client


def test_an_unsupported_version_closes_the_connection_and_logs_client_library_and_api(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(broker: WholeBroker) -> None:
        for key, version, software in ((1, 3, "librdkafka 0.11.0"), (0, 2, ""), (76, 1, "apache-kafka-java 4.3.1")):
            client_id = f"shop-{key}"
            client = refused(broker, key, version, client_id, software)
            assert client.connection.is_closed
            assert client.wire.received_bytes == 0
        assert list(broker.parts.counters.unsupported.rows) == [
            UnsupportedRequest("shop-1", "librdkafka", "0.11.0", "Fetch", 3),
            UnsupportedRequest("shop-0", "unknown", "unknown", "Produce", 2),
            UnsupportedRequest("shop-76", "apache-kafka-java", "4.3.1", "API 76", 1),
        ]

    with caplog.at_level(logging.WARNING, "ottla.broker.dispatch"):
        with_whole_broker(tmp_path, APIS, play)
    start = "closing the connection from 127.0.0.1, client id"
    assert [record.getMessage() for record in caplog.records] == [
        f"{start} 'shop-1', software librdkafka 0.11.0: it requests Fetch v3, and this broker supports v4 to v18",
        f"{start} 'shop-0', software unknown unknown: it requests Produce v2, and this broker supports v3 to v13",
        f"{start} 'shop-76', software apache-kafka-java 4.3.1: it requests API 76 v1, and this broker does not know it",
    ]


def test_a_client_that_retries_for_ever_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(broker: WholeBroker) -> None:
        for _ in range(2 * MINUTE + 1):
            refused(broker, 1, 3)
            await asyncio.sleep(1)

    with caplog.at_level(logging.WARNING, "ottla.broker.dispatch"):
        with_whole_broker(tmp_path, APIS, play)
    ends = [record.getMessage().partition("v4 to v18")[2] for record in caplog.records]
    assert ends[0] == ""
    assert len(ends) in (2, 3)
    assert "more such requests of this client since the last message" in ends[1]


def test_an_unknown_api_versions_version_is_answered_and_not_logged(tmp_path: Path) -> None:
    async def play(broker: WholeBroker) -> None:
        client = refused(broker, 18, 99)
        await asyncio.sleep(1)
        assert not client.connection.is_closed
        assert client.wire.received_bytes
        assert not broker.parts.counters.unsupported.rows

    with_whole_broker(tmp_path, APIS, play)
