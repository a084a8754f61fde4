"""What the tests of the recipes share: a background run of a recipe, and messages to give to it."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Message, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from tests.conformance.waiting import eventually

WAIT_SECONDS = 60.0  # a crashed member is missed only when its session is over


class Running:
    """A recipe in a thread: `with Running(lambda stop: at_least_once(..., stop)) as run:`; what it raises is raised."""

    def __init__(self, recipe: Callable[[threading.Event], None]) -> None:
        self._recipe = recipe
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._recipe(self.stop)
        except BaseException as error:  # noqa: BLE001
            self.failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop.set()
        self._thread.join(WAIT_SECONDS)
        if self.failure is not None and error is None:
            raise self.failure

    def wait_end(self) -> BaseException | None:
        """Until it has ended by itself; what it raised."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        failure, self.failure = self.failure, None
        return failure


class Crash(Exception):  # noqa: N818
    """Represents the end of a process at the worst moment."""


class Seen:
    """A handler that notes values; `crash_at` makes it crash at one value, before or after it was noted."""

    def __init__(self, crash_at: bytes | None = None) -> None:
        self.values: list[bytes] = []
        self.crash_at = crash_at

    def __call__(self, message: object) -> None:
        value = value_of(message)
        if value == self.crash_at:
            raise Crash(value)
        self.values.append(value)

    def wait(self, count: int, seconds_max: float = WAIT_SECONDS) -> list[bytes]:
        assert eventually(lambda: len(self.values) >= count, seconds_max), f"{len(self.values)} of {count} came"
        return self.values


def value_of(message: object) -> bytes:
    """Of a message of confluent-kafka or a record of kafka-python."""
    value = message.value() if isinstance(message, Message) else message.value  # type: ignore[attr-defined]
    assert isinstance(value, bytes)
    return value


def settings(bootstrap: str, **more: str | int) -> dict[str, str | int | float | bool]:
    """Of a consumer in a group of its own."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": bootstrap, "group.id": f"recipe-{uuid.uuid4().hex[:8]}"} | named


def send(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes],
    partition: int | None = None,
    headers: dict[str, bytes] | None = None,
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        place = {} if partition is None else {"partition": partition}
        producer.produce(topic, value, headers=list((headers or {}).items()), **place)  # type: ignore[arg-type]
    assert producer.flush(WAIT_SECONDS) == 0


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def read_all(bootstrap: str, topic: str, count: int, quiet_s: float = 0.3) -> list[bytes]:
    """Committed values of a topic: `count` of them, and whatever else comes within the quiet time after that."""
    reader = Consumer(settings(bootstrap) | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and (message := reader.poll(WAIT_SECONDS if len(found) < count else quiet_s)):
        assert message.error() is None, message.error()
        found.append(value_of(message))
    reader.close()
    return found


class Failing:
    """A transformation that crashes at its n-th call."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, message: object) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise Crash
        return doubled(message)


def doubled(message: object) -> bytes:
    return b"%d" % (2 * int(value_of(message)))


def auto_committing(bootstrap: str, group: str, topic: str, interval_ms: int = 5000) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=interval_ms,
    )


def first_poll(consumer: KafkaConsumer, seconds_max: float = WAIT_SECONDS) -> list[bytes]:
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        records = [record.value for batch in consumer.poll(2000).values() for record in batch]
        if records:
            return records
    return []


def end_without_commit(consumer: KafkaConsumer) -> None:
    """As a crash, but the group need not wait for the session to end."""
    consumer.close(autocommit=False)


def share(consumer: Consumer) -> int:
    consumer.poll(0.02)
    return len(consumer.assignment())


def describe(bootstrap: str, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS)


def members(bootstrap: str, group: str) -> list[str]:
    return [member.member_id for member in describe(bootstrap, group).members]


def shares(bootstrap: str, group: str) -> list[int]:
    """How many partitions each member has."""
    found = describe(bootstrap, group)
    is_stable = found.state == ConsumerGroupState.STABLE
    return [len(member.assignment.topic_partitions) for member in found.members] if is_stable else []


@contextmanager
def running_postgresql() -> Iterator[str]:
    """A PostgreSQL of our own behind a local socket; it refuses to run as root, and to look into pytest's folders."""
    initdb = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    if initdb is None:
        pytest.skip("PostgreSQL is not installed: there is no initdb")
    pg_ctl = str(Path(initdb).resolve().with_name("pg_ctl"))
    folder = tempfile.mkdtemp(prefix="ottla-postgresql-")
    user = "nobody" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        done = subprocess.run(command, user=user, check=False, capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"

    data, log = f"{folder}/data", f"{folder}/log"
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    try:
        run(initdb, "-D", data, "-U", "ottla", "-A", "trust", "-E", "UTF8", "--no-sync")
        run(pg_ctl, "-D", data, "-l", log, "-w", "-o", options, "start")
        yield f"host={folder} user=ottla dbname=postgres"
        run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
