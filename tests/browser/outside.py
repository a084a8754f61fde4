"""Helpers outside of pages: produce records, read offsets, wait."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from confluent_kafka import Producer
from playwright.sync_api import Page
from tests.browser.conftest import ConsoleProcess

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.offsets import LATEST, list_offsets

CHANGE_MS_MAX = 60_000  # an upper limit for updates of a page, generous for a busy machine


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def produce(client: Client, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": str(client.bootstrap[0])})
    for number in range(count):
        producer.produce(topic, value=f"record {number}".encode(), partition=partition)
    assert producer.flush(30) == 0


def ends(client: Client, topic: str, when: int = LATEST) -> list[int]:
    places = [TopicPartition(topic, number) for number in range(3)]
    found, failures = list_offsets(client, places, when)
    assert not failures
    return [found[place].offset for place in places]


def eventually(look: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + CHANGE_MS_MAX / 1000
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        time.sleep(0.05)


def open_page(page: Page, console: ConsoleProcess, address: str) -> None:
    page.goto(console.url(address))
