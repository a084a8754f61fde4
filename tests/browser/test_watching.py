"""What the monitor says about groups, in the console: real consumers commit, the page shows the verdict."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Page, expect

from browser.conftest import ConsoleProcess
from browser.outside import CHANGE_MS_MAX, new_name, open_page
from ottla.client.client import Client


def read_and_commit(client: Client, group: str, topic: str, count: int) -> None:
    """A member that reads so many records of the first partition, from where the group is, commits, and is gone."""
    consumer = Consumer(
        {
            "bootstrap.servers": str(client.bootstrap[0]),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    read = []
    while len(read) < count:
        read += [message for message in consumer.consume(count - len(read), 1) if message.error() is None]
    consumer.commit(offsets=[TopicPartition(topic, 0, read[-1].offset() + 1)], asynchronous=False)
    consumer.close()


def test_a_group_that_has_stopped_is_told_from_one_that_keeps_up(
    page: Page, console: ConsoleProcess, topic: str, client: Client
) -> None:
    late, prompt = new_name("late"), new_name("prompt")
    read_and_commit(client, late, topic, 3)
    read_and_commit(client, prompt, topic, 10)
    open_page(page, console, "/c/default/groups")
    expect(page.locator(f'tr[data-key="{late}"]').get_by_text("ERR", exact=True)).to_be_visible(timeout=CHANGE_MS_MAX)
    expect(page.locator(f'tr[data-key="{prompt}"]').get_by_text("OK", exact=True)).to_be_visible()

    page.get_by_role("link", name=late).click()
    row = page.locator(f'tr[data-key="{topic}-0"]')
    expect(row.get_by_text("STOP", exact=True)).to_be_visible()
    expect(row).to_contain_text(" s")  # how long its first unread record has waited
    read_and_commit(client, late, topic, 7)
    expect(row.get_by_text("OK", exact=True)).to_be_visible(timeout=CHANGE_MS_MAX)
