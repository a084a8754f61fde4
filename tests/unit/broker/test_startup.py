"""Startup: advertised addresses, the ready notification, and starts that fail."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from tests import virtual_time
from tests.virtual_time import run

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.systemd import notify_systemd
from ottla.broker.main import Broker, BrokerComponents, StartError
from ottla.broker.node import Node
from ottla.broker.startup import address_problem, wait_until_in_sync, warn_about_addresses
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.network.poller import Poller


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
def test_unusable_advertised_addresses_are_found(advertised: str, bound: str, problem: str | None) -> None:
    assert address_problem(advertised, bound) == problem


@pytest.mark.usefixtures("names")
def test_each_bad_address_is_one_line_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
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
    assert line.startswith("clients are sent to PLAINTEXT://no-such-host:1: no-such-host does not resolve")
    assert "LEADER_NOT_AVAILABLE" in line
    assert "set advertised.listeners" in line


def test_systemd_is_notified_at_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify_systemd("STOPPING=1")  # without a listening socket: a warning at most
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("READY=1")


def image_of(isrs: list[tuple[int, ...]]) -> MetadataImage:
    parts = tuple(PartitionImage(1, 0, isr, (1, 2)) for isr in isrs)
    return MetadataImage().with_topics([TopicImage("t", uuid4(), parts)])


def test_a_broker_is_in_sync_when_all_its_replicas_are_open_and_in_the_isr() -> None:
    async def scene() -> None:
        node = SimpleNamespace(id=2, image=image_of([(1, 2), (1,), (1,)]))
        held: Any = SimpleNamespace(recovering_partitions={"t-1"}, partitions={("t", 0): None, ("gone", 0): None})
        waiting = asyncio.ensure_future(wait_until_in_sync(cast("Node", node), held))
        await asyncio.sleep(1)
        assert not waiting.done(), "a log is still recovering"
        held.recovering_partitions.clear()
        held.partitions |= {("t", 1): None, ("t", 2): None}
        for image in (node.image, image_of([(1, 2), (1, 2), (1,)]), image_of([(1,), (1, 2), (1,)])):
            node.image = image
            await asyncio.sleep(1)
            assert not waiting.done(), "another partition is out of sync"
        del held.partitions["t", 0]
        await asyncio.sleep(1)
        assert not waiting.done()
        node.image = image_of([(1,), (1, 2), (1, 2)])
        await asyncio.sleep(1)
        assert waiting.done(), "partitions of other brokers do not count"

    run(scene())


def test_waiting_for_one_of_many_partitions_does_not_check_all_of_them_repeatedly() -> None:
    count, looks = 20_000, 0

    class CountingImage:
        def partition(self, topic: str, index: int) -> PartitionImage:
            nonlocal looks
            looks += 1
            return PartitionImage(1, 0, (1,) if index in late else (1, 2), (1, 2))

    async def scene() -> None:
        node: Any = SimpleNamespace(id=2, image=CountingImage())
        held: Any = SimpleNamespace(
            recovering_partitions=set(), partitions=dict.fromkeys(("t", number) for number in range(count))
        )
        waiting = asyncio.ensure_future(wait_until_in_sync(node, held))
        await asyncio.sleep(60)
        assert looks < count + 1_000
        late.clear()
        await asyncio.wait_for(waiting, 1)

    late = {count - 1}
    run(scene())


# ---- starts that fail


class Stage(Broker):
    """A broker with scripted work: `started` comes after its start."""

    is_started = False
    work_seconds = 0.0
    problem: Exception | None = None

    async def _serve(self, assembly: BrokerComponents, start_timeout: asyncio.Timeout) -> None:
        if self.is_started:
            start_timeout.reschedule(None)
        await asyncio.sleep(self.work_seconds)
        if self.problem is not None:
            raise self.problem


def run_start(folder: Path, **what: object) -> None:
    async def play() -> None:
        settings = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "server.max.startup.time.ms": "50"}
        stage = Stage(BrokerSettings(settings), Poller())
        for name, value in what.items():
            setattr(stage, name, value)
        try:
            await stage.run()
        finally:
            for bound in stage._sockets:
                bound.close()

    virtual_time.run(play())


def test_a_start_that_exceeds_the_limit_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"server\.max\.startup\.time\.ms"):
        run_start(tmp_path, work_seconds=30.0)


@pytest.mark.parametrize("is_started", [False, True])
def test_other_timeouts_are_not_reported_as_a_slow_start(tmp_path: Path, is_started: bool) -> None:
    with pytest.raises(TimeoutError, match="the disk did not answer"):
        run_start(tmp_path, is_started=is_started, problem=TimeoutError("the disk did not answer"))


def test_a_started_broker_is_not_limited(tmp_path: Path) -> None:
    run_start(tmp_path, is_started=True, work_seconds=0.1)
