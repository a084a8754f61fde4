"""LinkedIn's Burrow itself (Debian's package, 1.2.1) with a current broker, and the translation that it needs.

It asks for the ends of logs with ListOffsets v0 and reads commits up to version 3 of their records. Apache Kafka 4.3
serves no v0 and writes version 4, as ottla does, so two helpers translate: a proxy that sends v1 instead, and a copy
of the commits in version 3. Neither changes a number.
"""

import asyncio
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.conftest import free_port
from tests.faults.proxy import HEAD, LossyProxy, read_frame

from ottla.monitor.group_changes import TOPIC, CommittedOffset, read_change

LIST_OFFSETS = 2
VERSION_THAT_IT_READS = 3
COPY = "commits-in-version-3"
CONFIGURATION = """\
[general]
pidfile="{folder}/burrow.pid"
[zookeeper]
servers=["{zookeeper}"]
[client-profile.any]
kafka-version="2.1.0"
[cluster.default]
class-name="kafka"
servers=["{bootstrap}"]
client-profile="any"
topic-refresh=2
offset-refresh=1
[consumer.default]
class-name="kafka"
cluster="default"
servers=["{bootstrap}"]
client-profile="any"
offsets-topic="{offsets_topic}"
[httpserver.default]
address="127.0.0.1:{port}"
[storage.default]
class-name="inmemory"
intervals={intervals}
min-distance=0
[evaluator.default]
class-name="caching"
expire-cache=1
"""


def unpack(folder: Path) -> Path:
    """Debian's package without installing it; the program."""
    commands = ["apt-get download -qq -o APT::Sandbox::User=root burrow", "dpkg-deb -x burrow_*.deb unpacked"]
    for command in commands:
        subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True, timeout=120)
    return folder / "unpacked" / "usr" / "bin" / "Burrow"


class Burrow:
    """The process; what it says over HTTP is at `address`."""

    def __init__(self, program: Path, folder: Path, bootstrap: str, zookeeper: str, **settings: object) -> None:
        folder.mkdir()
        port = free_port()
        details = {"offsets_topic": TOPIC, "intervals": 4, "port": port, "folder": folder, **settings}
        (folder / "burrow.toml").write_text(CONFIGURATION.format(bootstrap=bootstrap, zookeeper=zookeeper, **details))
        self.address = f"http://127.0.0.1:{port}"
        self._log = folder / "burrow.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([program, "--config-dir", folder], cwd=folder, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        self._process.kill()  # SIGTERM waits for the reader of the offsets, sometimes for ever
        self._process.wait(30)


class ListOffsetsProxy(LossyProxy):
    """Loses nothing; ListOffsets v0 becomes v1 on the way there and v0 again on the way back."""

    def __init__(self) -> None:
        super().__init__(0, losses_max=0, loss_rate=0)

    async def _requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, to_lose: dict[int, int]
    ) -> None:
        while frame := await read_frame(client):
            api_key, version, correlation_id = HEAD.unpack_from(frame, 4)
            if (api_key, version) == (LIST_OFFSETS, 0):
                to_lose[correlation_id] = api_key
                frame = framed(HEAD.pack(api_key, 1, correlation_id) + asked_in_version_1(frame[12:]))
            to_broker.write(frame)
            await to_broker.drain()

    async def _answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, to_lose: dict[int, int]
    ) -> None:
        while frame := await read_frame(broker):
            if to_lose.pop(struct.unpack_from(">i", frame, 4)[0], None) is not None:
                frame = framed(frame[4:8] + answered_in_version_0(frame[8:]))
            to_client.write(frame)
            await to_client.drain()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def asked_in_version_1(request: bytes) -> bytes:
    """Without the number of offsets that are wanted; `request` begins with the client's id, then the replica's."""
    begin = 2 + max(0, struct.unpack_from(">h", request)[0]) + 4
    return request[:begin] + each_partition(request[begin:], 16, lambda part: part[:12])


def answered_in_version_0(answer: bytes) -> bytes:
    """With a list of one offset in place of a time and an offset."""
    return each_partition(answer, 22, lambda part: part[:6] + struct.pack(">i", 1) + part[14:])


def each_partition(topics: bytes, size: int, change: Callable[[bytes], bytes]) -> bytes:
    made, at = topics[:4], 4
    for _ in range(struct.unpack_from(">i", topics)[0]):
        begin, at = at, at + 2 + struct.unpack_from(">h", topics, at)[0]
        count = struct.unpack_from(">i", topics, at)[0]
        at += 4
        made += topics[begin:at]
        for _ in range(count):
            made += change(topics[at : at + size])
            at += size
    return made


class CommitCopier:
    """Writes every commit once more, as a record that Burrow can read."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "copier", "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False, "fetch.wait.max.ms": 20}
        )
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        partitions = self._consumer.list_topics(TOPIC, 30).topics[TOPIC].partitions
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
        while not self._is_ended.is_set():
            record = self._consumer.poll(0.1)
            if record is None or record.error():
                continue
            change = read_change(record.key(), record.value(), record.offset())
            if isinstance(change, CommittedOffset) and change.commit is not None:
                offset, timestamp_ms = change.commit.offset, change.commit.timestamp_ms
                value = struct.pack(">hqihq", VERSION_THAT_IT_READS, offset, -1, 0, timestamp_ms)  # no epoch, no text
                self._producer.produce(COPY, value, record.key())
                self._producer.poll(0)

    def close(self) -> None:
        self._is_ended.set()
        self._thread.join(30)
        self._producer.flush(30)
        self._consumer.close()
