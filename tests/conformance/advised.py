"""Loads for the tests that follow advice: records at a pace, consumers that work, and what `ottla advise` says."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Self

from confluent_kafka import Consumer, Producer
from tests.conformance.in_process import run_here

QUIET = {"log_level": 0}


def order(chance: Random) -> bytes:
    """JSON with much that repeats and some that does not."""
    return json.dumps(
        {
            "order": f"{chance.getrandbits(64):016x}",
            "customer": chance.randrange(10**6),
            "town": chance.choice(("Berlin", "Lagos", "Lima", "Osaka")),
            "state": chance.choice(("created", "paid", "sent")),
            "price": chance.randrange(10**5) / 100,
        }
    ).encode()


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    settings: Mapping[str, Any] | None = None,
    *,
    rate: float = 0.0,
    key: Callable[[int], bytes | None] = lambda _: None,
) -> None:
    """All at once, or evenly at a rate; the values are the same each time."""
    chance = Random(19)
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
            **QUIET,
            **(settings or {}),
        }
    )
    producer.list_topics(topic, 10)
    start = time.monotonic()
    for number in range(count):
        producer.produce(topic, order(chance), key=key(number))
        producer.poll(0)
        if rate:
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
    assert producer.flush(30) == 0
    assert not failed, failed[0]


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """A background activity that runs until it is stopped."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Member:
    """A consumer in a thread of its own that works `work_s` on each record."""

    def __init__(self, bootstrap: str, topic: str, work_s: float = 0.0, **settings: Any) -> None:
        self.read = 0
        self.is_committing_each = settings.pop("is_committing_each", False)
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.work_s = work_s
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                **QUIET,
                **given,
            }
        )
        self.consumer.subscribe([topic])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self.consumer.poll(0.05)
            if message is None or message.error():
                continue
            time.sleep(self.work_s)
            self.read += 1
            if self.is_committing_each:
                self.consumer.commit(message, asynchronous=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.consumer.close()

    def __repr__(self) -> str:
        return f"<Member that has read {self.read}>"


def advise(bootstrap: str, *words: str) -> dict[str, Any]:
    """The document of `ottla advise`, its advice by rule."""
    result = run_here("ottla", "advise", "--bootstrap-server", bootstrap, "--json", *words)
    assert result.code == 0, result.err
    document: dict[str, Any] = json.loads(result.out)
    document["advice"] = {each["rule"]: each for each in document["advice"]}
    return document
