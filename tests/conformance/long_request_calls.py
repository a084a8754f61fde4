"""Long requests to a real broker, while another client sends small ones."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tests.conformance.raw import Connection, ConnectionClosedError
from tests.conftest import Broker
from tests.long_requests import LongRequest, World

from ottla.protocol.apis import ALL_APIS
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.headers import response_header_bytes
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest

TOPICS, PARTITIONS = 100, 300
ANSWER_SECONDS_MAX = 120.0
API_VERSIONS = 18
REPORT = "longest_callback_ms"


def ask(connection: Connection, key: int, version: int, request: Any) -> Any:
    """One request and its answer as messages."""
    api = ALL_APIS[key]
    answer = connection.ask(
        key, version, bytes(encode(request, version)), flexible_header=version >= api.flexible_since
    )
    return decode_whole(api.response, version, memoryview(answer), response_header_bytes(key, version) - 4)


def make_world(bootstrap: str) -> World:
    """Topics, coordinators, and a producer with a transactional id."""
    counts = {**{f"long-{number}": 1 for number in range(TOPICS)}, "wide": PARTITIONS}
    rows = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in counts.items()]
    with Connection(bootstrap, ANSWER_SECONDS_MAX) as connection:
        made = ask(connection, 19, 7, CreateTopicsRequest(topics=rows, timeout_ms=60_000)).topics
        for key_type in (0, 1):
            ready(lambda kind=key_type: coordinator_error(connection, kind))
        producer = ready(
            lambda: ask(
                connection, 22, 4, InitProducerIdRequest(transactional_id="long", transaction_timeout_ms=60_000)
            )
        )
    ids = {topic.name: topic.topic_id for topic in made}
    now_ms = int(time.time() * 1000)
    return World(
        [(name, topic_id) for name, topic_id in ids.items() if name != "wide"],
        ("wide", ids["wide"]),
        PARTITIONS,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        records=bytes(build_batch([Record(0, now_ms, None, b"value", ())])),
    )


def coordinator_error(connection: Connection, key_type: int) -> Any:
    return ask(connection, 10, 4, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["long"])).coordinators[0]


def ready(question: Callable[[], Any]) -> Any:
    """The first answer without an error: coordinators take a moment."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while (answer := question()).error_code != 0:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def others_wait(bootstrap: str, long: LongRequest) -> float:
    """Send it; how many seconds another client waited at most until it was answered (or refused as malformed)."""
    body = bytes(encode(long.request, long.version))
    problems: list[BaseException] = []

    def send() -> None:
        try:
            with Connection(bootstrap, ANSWER_SECONDS_MAX) as connection, suppress(ConnectionClosedError):
                is_flexible = long.version >= long.api.flexible_since
                connection.ask(long.api.key, long.version, body, flexible_header=is_flexible)
        except BaseException as problem:  # noqa: BLE001 (raised again in the test's thread)
            problems.append(problem)

    sending = threading.Thread(target=send)
    longest = 0.0
    with Connection(bootstrap, ANSWER_SECONDS_MAX) as other:
        sending.start()
        while sending.is_alive():
            began = time.monotonic()
            other.ask(API_VERSIONS, 0, b"")
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.001)  # so that this thread leaves the processor to the other one
    sending.join()
    assert not problems, f"{long.label}: {problems[0]!r}"
    return longest


def longest_callback_ms(broker: Broker) -> float:
    """What the broker says about its own loop."""
    told = len(list(reports(broker)))
    os.kill(broker.pid, signal.SIGUSR1)
    while len(lines := list(reports(broker))) == told:
        time.sleep(0.01)
    return float(json.loads(lines[-1])[REPORT])


def reports(broker: Broker) -> Iterator[str]:
    return (line for line in broker.log_text.splitlines() if line.startswith("{") and REPORT in line)
