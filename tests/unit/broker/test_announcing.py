"""Telling the world that the broker serves."""

import asyncio
import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from ottla.base.broker_settings import load_broker_settings
from ottla.base.systemd import tell_systemd
from ottla.broker.announcing import address_problem, in_sync, warn_about_addresses
from ottla.broker.node import Node
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from virtual_time import run


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that knows three names."""
    known = {"good": "10.0.0.1", "debian": "127.0.1.1", "localhost": "127.0.0.1", "10.0.0.9": "10.0.0.9"}

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("advertised", "bound", "problem"),
    [
        ("good", "", None),
        ("10.0.0.9", "0.0.0.0", None),
        ("localhost", "127.0.0.1", None),
        ("no-such-host", "localhost", None),
        ("localhost", "", "on any other machine localhost is that machine itself"),
        ("debian", "0.0.0.0", "on any other machine debian is that machine itself"),
        ("no-such-host", "", "no-such-host does not resolve, at least not on this machine"),
        ("no-such-host", "10.0.0.1", "no-such-host does not resolve, at least not on this machine"),
    ],
)
def test_addresses_that_clients_cannot_use(advertised: str, bound: str, problem: str | None) -> None:
    assert address_problem(advertised, bound) == problem


@pytest.mark.usefixtures("names")
def test_each_bad_address_is_one_line_with_the_cure(caplog: pytest.LogCaptureFixture) -> None:
    settings = load_broker_settings(
        None,
        {
            "listeners": "PLAINTEXT://:1,INTERNAL://10.0.0.1:2",
            "advertised.listeners": "PLAINTEXT://no-such-host:1,INTERNAL://good:2",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        },
    )
    with caplog.at_level(logging.WARNING, "ottla"):
        warn_about_addresses(settings)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("clients are told to connect to PLAINTEXT://no-such-host:1: no-such-host does not resolve")
    assert "LEADER_NOT_AVAILABLE" in line
    assert "set advertised.listeners" in line


def test_systemd_is_told_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        tell_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"
    tell_systemd("STOPPING=1")  # nobody listens any more: a warning at most
    monkeypatch.delenv("NOTIFY_SOCKET")
    tell_systemd("READY=1")


def image_of(isrs: list[tuple[int, ...]]) -> MetadataImage:
    parts = tuple(PartitionImage(1, 0, isr, (1, 2)) for isr in isrs)
    return MetadataImage().with_topics([TopicImage("t", uuid4(), parts)])


def test_a_broker_is_in_sync_when_all_that_it_holds_is_open_and_in_the_isr() -> None:
    async def scene() -> None:
        node = SimpleNamespace(id=2, image=image_of([(1, 2), (1,), (1,)]))
        held: Any = SimpleNamespace(recovering={"t-1"}, partitions={("t", 0): None, ("gone", 0): None})
        waiting = asyncio.ensure_future(in_sync(cast("Node", node), held))
        await asyncio.sleep(1)
        assert not waiting.done(), "not everything is open"
        held.recovering.clear()
        held.partitions |= {("t", 1): None, ("t", 2): None}
        for image in (node.image, image_of([(1, 2), (1, 2), (1,)]), image_of([(1,), (1, 2), (1,)])):
            node.image = image
            await asyncio.sleep(1)
            assert not waiting.done(), "one is late, and now another"
        del held.partitions["t", 0]
        await asyncio.sleep(1)
        assert not waiting.done()
        node.image = image_of([(1,), (1, 2), (1, 2)])
        await asyncio.sleep(1)
        assert waiting.done(), "what is held by others only does not count"

    run(scene())


def test_who_waits_for_one_of_many_partitions_does_not_look_at_all_of_them_all_the_time() -> None:
    count, looks = 20_000, 0

    class CountingImage:
        def partition(self, topic: str, index: int) -> PartitionImage:
            nonlocal looks
            looks += 1
            return PartitionImage(1, 0, (1,) if index in late else (1, 2), (1, 2))

    async def scene() -> None:
        node: Any = SimpleNamespace(id=2, image=CountingImage())
        held: Any = SimpleNamespace(
            recovering=set(), partitions=dict.fromkeys(("t", number) for number in range(count))
        )
        waiting = asyncio.ensure_future(in_sync(node, held))
        await asyncio.sleep(60)
        assert looks < count + 1_000
        late.clear()
        await asyncio.wait_for(waiting, 1)

    late = {count - 1}
    run(scene())
