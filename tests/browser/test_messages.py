"""Messages in the console: seen, searched, written; messages produced in the page are read with kafka-python."""

from __future__ import annotations

import base64
import csv
import io
import json
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess
from tests.browser.outside import CHANGE_MS_MAX, new_name, open_page

from ottla.client.admin import Admin
from ottla.client.client import Client

EVIL = '<img src=x onerror="document.title=1">\u202eevil'


def filled(client: Client, count: int = 200) -> str:
    """Three partitions: JSON, a key, headers, a null, bytes that are no text, something malicious, 2 MB, 300 deep."""
    name = new_name("messages")
    Admin(client).create_topic(name, partitions=3, replication_factor=1, configs={"max.message.bytes": "8000000"})
    producer = Producer({"bootstrap.servers": str(client.bootstrap[0]), "message.max.bytes": 8_000_000})
    for number in range(count):
        value = json.dumps({"user": {"id": number, "name": "Müller" if number == 42 else "n"}}).encode()
        producer.produce(name, value, b"k%d" % number, partition=number % 3, headers=[("trace", b"t%d" % number)])
    producer.flush(30)
    for value in (None, b"\x00\xff\x01", EVIL.encode(), b"x" * 2_000_000, b"[" * 300 + b"]" * 300, b"=1+1"):
        producer.produce(name, value, partition=0)
        producer.flush(30)
    assert producer.flush(30) == 0
    return name


def api(console: ConsoleProcess, path: str) -> bytes:
    return console.request(f"/api/clusters/default/topics/{path}")


def test_messages_are_seen_searched_written_and_written_again(
    page: Page, console: ConsoleProcess, client: Client, bootstrap: str
) -> None:
    topic = filled(client)
    open_page(page, console, f"/c/default/topics/{topic}/messages")
    expect(page.locator("tr[data-key]").first).to_contain_text("=1+1", timeout=CHANGE_MS_MAX)
    assert page.locator('tr[data-key="0:67"] td').nth(4).inner_text() == "null"

    page.get_by_label("Search", exact=True).fill("value.user.id = 42")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#progress")).to_contain_text("Search complete")
    expect(page.locator("#progress")).to_contain_text("1 hits in 206 messages")
    page.locator('tr[data-key="0:14"]').click()
    panel = page.get_by_role("complementary", name="Message")
    expect(panel).to_contain_text("Müller")
    expect(panel).to_contain_text("t42")
    panel.get_by_role("button", name="Bytes").last.click()
    expect(panel).to_contain_text("00000000  7b 22 75 73 65 72 22")
    shared = page.url
    assert "q=value.user.id" in shared
    assert "open=0%3A14" in shared

    panel.get_by_role("button", name="Produce again").click()
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    expect(page.get_by_text("Written to partition")).to_be_visible()

    page.get_by_role("button", name="Produce a message").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("No key (null)").uncheck()
    dialog.get_by_label("Key", exact=True).fill("from-page")
    dialog.get_by_label("Value", exact=True).fill('{"made": "in the page"}')
    dialog.get_by_label("Headers").fill("source: console\nalone")
    dialog.get_by_label("Partition").fill("2")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_be_hidden()

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    read = {}
    for record in consumer:
        read[record.key, record.value] = record
        if len(read) == 207:  # all but the copy, and what was made in the page
            break
    consumer.close()
    made = read[b"from-page", b'{"made": "in the page"}']
    assert made.partition == 2
    assert list(made.headers) == [("source", b"console"), ("alone", None)]
    assert len([value for key, value in read if key == b"k42"]) == 1, "the copy is the same byte by byte"

    page.goto(shared)
    expect(page.get_by_role("complementary", name="Message")).to_contain_text("Partition 0, offset 14")


def test_malicious_and_large_values_are_text_and_live_ones_appear(
    page: Page, console: ConsoleProcess, client: Client
) -> None:
    topic = filled(client, 30)
    open_page(page, console, f"/c/default/topics/{topic}/messages?partition=0")
    expect(page.locator('tr[data-key="0:12"]')).to_contain_text("<img src=x", timeout=CHANGE_MS_MAX)
    for offset, words in ((11, "00 ff 01"), (12, "\\u{202e}evil"), (13, "1.91 MiB"), (14, "600 B"), (15, "=1+1")):
        page.locator(f'tr[data-key="0:{offset}"]').click()
        panel = page.get_by_role("complementary", name="Message")
        expect(panel).to_contain_text(f"offset {offset}")
        page.get_by_role("button", name="Bytes" if offset == 11 else "Text").last.click() if offset < 13 else None
        expect(panel).to_contain_text(words)
    assert page.title() == f"{topic} · ottla"
    page.get_by_label("Start position").select_option("live")
    page.get_by_label("Partition", exact=True).select_option("")
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    producer = Producer({"bootstrap.servers": str(client.bootstrap[0])})
    for number in range(2000):
        producer.produce(topic, b"live %d" % number, partition=number % 3)
    assert producer.flush(30) == 0
    expect(page.locator("tr[data-key]").first).to_contain_text("live 19", timeout=CHANGE_MS_MAX)
    page.wait_for_function("document.querySelector('#messages table').getAttribute('aria-rowcount') === '2001'")
    assert page.locator("tr[data-key]").count() < 100, "only what is in sight is in the document"


def test_files_masks_and_questions_that_make_no_sense(console: ConsoleProcess, client: Client) -> None:
    topic = filled(client, 9)
    lines = [json.loads(line) for line in api(console, f"{topic}/message-file?format=json&q=key").splitlines()]
    assert lines == []
    lines = [json.loads(line) for line in api(console, f"{topic}/message-file?format=json").splitlines()]
    assert len(lines) == 15
    assert {"base64": base64.b64encode(b"\x00\xff\x01").decode()} in [line["value"] for line in lines]
    csv.field_size_limit(8_000_000)
    rows = list(csv.reader(io.StringIO(api(console, f"{topic}/message-file?format=csv").decode(), newline="")))
    assert [row[4] for row in rows if row[4].endswith("1+1")] == ["'=1+1"]
    console.ask("/api/clusters/default/masks", {"rules": ["messages-*:value.user.name"]}, "PUT")
    masked = json.loads(api(console, f"{topic}/messages?partition=1&limit=1"))["messages"][0]
    assert masked["value"]["json"] == {"user": {"id": 7, "name": "***"}}
    events = [json.loads(line) for line in api(console, f"{topic}/search?q=value.user.name%3Dn").splitlines()]
    assert events[-1]["end"]["hits"] == 0, "what is hidden is not found either"
    assert b"***" in api(console, f"{topic}/message-file?format=csv&q=value.user.id%3D7")
    for path in (
        "search?q=value.a%20%3D",
        "messages?from=x",
        "messages?cursor=x",
        "messages/0/x",
        "message-file?format=x",
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            api(console, f"{topic}/{path}")
        assert refused.value.code == 400
        assert json.loads(refused.value.read())["message"]
