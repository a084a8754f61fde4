"""A request in a version that the broker does not speak: the connection ends, and the log says who it was."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ottla.broker.handlers.table import APIS
from ottla.metrics.unsupported_requests import Asked
from ottla.protocol.headers import encode_request_header
from unit.broker.whole_broker import Client, WholeBroker, with_whole_broker

MINUTE = 60


def refused(broker: WholeBroker, key: int, version: int, client_id: str | None = "shop", software: str = "") -> Client:
    """A client of which nothing but a header came."""
    client = broker.connect()
    if software:
        client.connection.client.software_name, client.connection.client.software_version = software.split()
    header = encode_request_header(key, version, 1, client_id)
    client.wire.to_broker += len(header).to_bytes(4, "big") + header
    client.connection.on_readable()
    return client


def test_the_connection_ends_and_client_library_api_and_version_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(broker: WholeBroker) -> None:
        for key, version, software in ((1, 3, "librdkafka 0.11.0"), (0, 2, ""), (76, 1, "apache-kafka-java 4.3.1")):
            client_id = f"shop-{key}"
            client = refused(broker, key, version, client_id, software)
            assert client.connection.is_closed
            assert client.wire.received_bytes == 0
        assert list(broker.parts.counters.unsupported.rows) == [
            Asked("shop-1", "librdkafka", "0.11.0", "Fetch", 3),
            Asked("shop-0", "unknown", "unknown", "Produce", 2),
            Asked("shop-76", "apache-kafka-java", "4.3.1", "API 76", 1),
        ]

    with caplog.at_level(logging.WARNING, "ottla.broker.dispatch"):
        with_whole_broker(tmp_path, APIS, play)
    start = "closing the connection from 127.0.0.1, client id"
    assert [record.getMessage() for record in caplog.records] == [
        f"{start} 'shop-1', software librdkafka 0.11.0: it asks for Fetch v3, and this broker speaks v4 to v18",
        f"{start} 'shop-0', software unknown unknown: it asks for Produce v2, and this broker speaks v3 to v13",
        f"{start} 'shop-76', software apache-kafka-java 4.3.1: it asks for API 76 v1, and this broker does not know it",
    ]


def test_a_client_that_tries_for_ever_gets_one_line_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(broker: WholeBroker) -> None:
        for _ in range(2 * MINUTE + 1):
            refused(broker, 1, 3)
            await asyncio.sleep(1)

    with caplog.at_level(logging.WARNING, "ottla.broker.dispatch"):
        with_whole_broker(tmp_path, APIS, play)
    ends = [record.getMessage().partition("v4 to v18")[2] for record in caplog.records]
    assert ends[0] == ""
    assert len(ends) in (2, 3)
    assert "more such requests of this client since the last line" in ends[1]


def test_api_versions_of_tomorrow_is_answered_and_is_nobodys_fault(tmp_path: Path) -> None:
    async def play(broker: WholeBroker) -> None:
        client = refused(broker, 18, 99)
        await asyncio.sleep(1)
        assert not client.connection.is_closed
        assert client.wire.received_bytes
        assert not broker.parts.counters.unsupported.rows

    with_whole_broker(tmp_path, APIS, play)
