"""Reassignments and elections in the page: two real brokers, and a client that checks the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, eventually, new_name, open_page, produce

from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, describe_configs
from ottla.client.reassignments import alter_reassignments, list_reassignments
from ottla.operations.reassignment.throttles import BROKER_KEYS, TOPIC_KEYS
from ottla.testing.cluster import Cluster

SLOW = "0.001"  # MB per second: the move must outlast a restart of the console
RECORDS, RECORD_BYTES = 40, 100_000  # more than one fetch takes: only then does a throttle hold anything up


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def console(make_console: MakeConsole, cluster: Cluster) -> ConsoleProcess:
    return make_console("--bootstrap-server", cluster.bootstrap)


def replicas(client: Client, topic: str) -> list[list[int]]:
    return [partition.replicas for partition in Admin(client).topic(topic).partitions]


def leaders(client: Client, topic: str) -> list[int]:
    return [partition.leader for partition in Admin(client).topic(topic).partitions]


def throttled(client: Client, topic: str) -> set[str]:
    """Where a throttle is set."""
    own = describe_configs(client, Resource.TOPIC, [topic])[topic]
    found = {item.name for item in own if item.name in TOPIC_KEYS and item.value}
    for broker in ("1", "2"):
        configs = describe_configs(client, Resource.BROKER, [broker])[broker]
        found |= {f"{broker}:{item.name}" for item in configs if item.name in BROKER_KEYS and item.source == 2}
    return found


def test_assignments_are_generated_written_by_hand_and_run_and_leaders_elected(
    page: Page, console: ConsoleProcess, client: Client
) -> None:
    topic = new_name("spread")
    Admin(client).create_topic(topic, partitions=2, replication_factor=1)
    produce(client, topic, 10)
    open_page(page, console, f"/c/default/topics/{topic}/reassignments")
    page.get_by_role("button", name="Generate Partition Assignments").click()
    page.get_by_label("Broker 1").uncheck()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 of 2 partitions change")
    page.get_by_role("dialog").get_by_role("button", name="Run Partition Assignments").click()
    page.wait_for_url("**/c/default/reassignments")
    expect(page.locator("#run")).to_contain_text("done", timeout=CHANGE_MS_MAX)
    assert replicas(client, topic) == [[2], [2]]
    assert throttled(client, topic) == set()

    open_page(page, console, f"/c/default/topics/{topic}/reassignments")
    page.get_by_role("button", name="Generate Partition Assignments").click()
    page.get_by_label("Broker 1").uncheck()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("dialog")).to_contain_text("No moves are needed")
    page.get_by_role("button", name="Cancel").click()

    page.get_by_role("button", name="Manual Partition Assignments").click()
    page.get_by_label("Replicas of partition 0").fill("1, 9")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("dialog")).to_contain_text("Unknown broker id 9")
    page.get_by_label("Replicas of partition 0").fill("1, 2")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 partitions get another leader")
    page.get_by_role("dialog").get_by_role("button", name="Run Partition Assignments").click()
    eventually(lambda: (replicas(client, topic), leaders(client, topic)), ([[1, 2], [2]], [1, 2]))

    open_page(page, console, f"/c/default/topics/{topic}/reassignments")
    button = page.get_by_role("button", name="Preferred Replica Election")
    expect(button).to_be_disabled()
    alter_reassignments(client, {TopicPartition(topic, 0): [2, 1]})
    expect(button).to_be_enabled(timeout=CHANGE_MS_MAX)
    assert leaders(client, topic) == [1, 2]
    button.click()
    page.get_by_role("button", name="Elect", exact=True).click()
    expect(button).to_be_disabled(timeout=CHANGE_MS_MAX)
    assert leaders(client, topic) == [2, 2]


def test_a_setting_of_a_broker_is_changed_and_put_back(page: Page, console: ConsoleProcess, client: Client) -> None:
    name = "producer.id.expiration.ms"

    def value() -> str | None:
        return {item.name: item.value for item in describe_configs(client, Resource.BROKER, ["1"])["1"]}[name]

    before = value()
    open_page(page, console, f"/c/default/brokers/1/settings?q={name}")
    row = page.locator(f'tr[data-key="{name}"]')
    row.get_by_role("button", name="Change").click()
    page.get_by_label("Value").fill("86400001")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("86400001")
    assert value() == "86400001"
    row.get_by_role("button", name="Change").click()
    page.get_by_role("button", name="Restore the default").click()
    expect(row).not_to_contain_text("86400001")
    assert value() == before


def test_a_run_outlives_its_console_and_is_cancelled_without_leaving_a_throttle(
    page: Page, cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    topic = new_name("slow")
    Admin(client).create_topic(topic, partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(RECORDS):
        producer.produce(topic, value=bytes(RECORD_BYTES), partition=0)
    assert producer.flush(30) == 0
    (before,) = replicas(client, topic)
    (other,) = {1, 2} - set(before)
    console = ConsoleProcess(tmp_path, "--bootstrap-server", cluster.bootstrap)
    open_page(page, console, f"/c/default/topics/{topic}/reassignments")
    page.get_by_role("button", name="Manual Partition Assignments").click()
    page.get_by_label("Replicas of partition 0").fill(str(other))
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_label("Throttle, MB a second for each broker").fill(SLOW)
    page.get_by_role("dialog").get_by_role("button", name="Run Partition Assignments").click()
    eventually(lambda: list(list_reassignments(client)), [TopicPartition(topic, 0)])
    assert throttled(client, topic)
    page.goto("about:blank")
    console.stop()

    console = ConsoleProcess(tmp_path, "--bootstrap-server", cluster.bootstrap)
    try:
        open_page(page, console, "/c/default/reassignments")
        expect(page.locator("#run")).to_contain_text("in progress", timeout=CHANGE_MS_MAX)
        expect(page.locator(f'tr[data-key="{topic}-0"]')).to_be_visible(timeout=CHANGE_MS_MAX)
        page.get_by_role("button", name="Cancel all moves").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel all moves").click()
        expect(page.locator("#run .badge")).to_have_text("cancelled", timeout=CHANGE_MS_MAX)
        assert list_reassignments(client) == {}
        assert replicas(client, topic) == [before]
        assert throttled(client, topic) == set()
    finally:
        page.goto("about:blank")
        console.stop()
