"""A pipeline in the page: its run as it goes on, stopping it, its dead letters, and sending them again for real.

The run is a process of ours that does nothing, with the files that a real one leaves behind; what a run of Spark
writes into them, and how it makes letters, is tested in tests/pipelines.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, eventually, new_name, open_page

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.operations.dead_letters import HEADER_SUFFIXES
from ottla.operations.messages.offset_ranges import OffsetBound
from ottla.operations.messages.pages import PageRequest, read_page
from ottla.operations.messages.record_reader import Record
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import PipelineTopics, Status, now_ms, process_start, run_folder
from ottla.pipelines.running.status import RunFolder

STEPS = (StepCount("shop", 1, "parse", 100, 90, 0, 4, 6, 90), StepCount("shop", 2, "rule", 90, 70, 19, 0, 0, 70))


class FakeRun:
    """Files of a run whose process sleeps."""

    def __init__(self, state: Path, bootstrap: str) -> None:
        self.state = state
        self.name, self.topic = new_name("pipeline"), new_name("source")
        self.letters = f"{self.name}-dead-letters"
        self.process = subprocess.Popen(["sleep", "600"])
        places = PipelineTopics(bootstrap, (self.topic,), (), ("nowhere",), (), (new_name("group"),), self.letters)
        status = Status(
            self.name, self.process.pid, process_start(self.process.pid) or 0, _host(), "starting", places=places,
            started_ms=now_ms() - 60_000,
        )  # fmt: skip
        self.folder = RunFolder(state, status)
        self.folder.folder.mkdir(parents=True)
        self.batch = 0

    def add(self, rows: int) -> None:
        self.batch += 1
        at_ms = now_ms() - 20_000 + 1_000 * self.batch
        snapshot = Snapshot(
            "main", at_ms, self.batch, self.batch, rows, rows // self.batch, 5.0, 9.0, 800, 3, state_bytes=2_000,
            watermark_ms=at_ms - 7_000, watermark_age_ms=7_000, steps=STEPS, records={"shop": rows},
        )  # fmt: skip
        self.folder.add(snapshot)
        self.folder.change("running", queries=[snapshot])


def _host() -> str:
    return subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()


def letter(name: str, topic: str, offset: int, reason: str) -> list[tuple[str, bytes]]:
    told = dict(
        zip(
            HEADER_SUFFIXES,
            (name, "shop 1 parse", reason, topic, "0", str(offset), "2026-01-01T00:00:00Z"),
            strict=True,
        )
    )
    return [("trace", b"t1"), *((f"ottla.{key}", value.encode()) for key, value in told.items())]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def console(make_console: MakeConsole, bootstrap: str, state: Path) -> ConsoleProcess:
    return make_console("--bootstrap-server", bootstrap, "--pipelines", str(state))


@pytest.fixture
def fake_run(state: Path, bootstrap: str, client: Client) -> Iterator[FakeRun]:
    fake = FakeRun(state, bootstrap)
    for topic in (fake.topic, fake.letters):
        Admin(client).create_topic(topic, partitions=1, replication_factor=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(fake.topic, b"hello", key=b"k")
    for number, reason in enumerate(('not JSON: "hello"', 'not JSON: "you there"', "price is positive")):
        producer.produce(fake.letters, b"hello", key=b"k", headers=letter(fake.name, fake.topic, number * 100, reason))
    assert producer.flush(30) == 0
    try:
        yield fake
    finally:
        fake.process.kill()
        fake.process.wait()


def written(client: Client, topic: str) -> list[Record]:
    return read_page(client, PageRequest(topic, 100, start=OffsetBound())).records


def test_a_run_is_followed_with_its_plots_and_places_and_stopped(
    page: Page, console: ConsoleProcess, fake_run: FakeRun
) -> None:
    for rows in (50, 100):
        fake_run.add(rows)
    open_page(page, console, f"/c/default/pipelines/{fake_run.name}")
    expect(page.locator(".figures")).to_contain_text("running")
    steps = page.get_by_role("table", name="Rows at each step")
    expect(steps.get_by_role("row").nth(1)).to_contain_text("100")
    expect(steps).to_contain_text("1 missing")  # of 90 rows 70 were kept and 19 filtered
    expect(page.get_by_role("alert")).to_contain_text("The row counts do not add up")
    expect(page.locator("#course .plot")).to_have_count(6)
    expect(page.locator("#places")).to_contain_text("nowhere not in this cluster")

    fake_run.add(5_000)
    expect(page.get_by_role("table", name="Queries")).to_contain_text("5,000", timeout=CHANGE_MS_MAX)
    with page.expect_download() as download:
        page.get_by_role("link", name="SVG").click()
    assert b"<svg" in Path(download.value.path()).read_bytes()

    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    eventually(lambda: fake_run.process.poll() is not None, True)
    expect(page.locator(".figures")).to_contain_text("killed", timeout=CHANGE_MS_MAX)  # sleep says nothing at its end

    page.locator("#places").get_by_role("link", name=fake_run.topic).click()
    page.wait_for_url(f"**/topics/{fake_run.topic}")


def test_dead_letters_are_counted_shown_and_resent_once(
    page: Page, console: ConsoleProcess, fake_run: FakeRun, client: Client
) -> None:
    fake_run.add(100)
    open_page(page, console, f"/c/default/pipelines/{fake_run.name}/letters")
    kinds = page.get_by_role("table", name="By step and reason")
    expect(kinds.get_by_role("row", name="not JSON")).to_contain_text("2", timeout=CHANGE_MS_MAX)
    expect(page.locator("#letters-bar")).to_contain_text("3 letters")

    # One of them, whose source record is there, and one whose source record is gone.
    letters = page.get_by_role("table", name="Letters")
    letters.get_by_role("row", name="price is positive").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#letter")).to_contain_text("deleted")
    letters.get_by_role("row", name='not JSON: "hello"').click()
    panel = page.locator("#letter")
    expect(panel).to_contain_text("trace")
    expect(panel).not_to_contain_text("ottla.reason")
    panel.get_by_role("button", name="Resend").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#resend-plan")).to_contain_text("1 letters")
    dialog.get_by_role("button", name="Resend 1").dblclick()
    expect(dialog).to_be_hidden()
    again = written(client, fake_run.topic)
    assert [(record.key, record.value, record.headers) for record in again[1:]] == [
        (b"k", b"hello", [("trace", b"t1")])
    ]

    # All of a reason: what was sent already is left out.
    kinds.get_by_role("row", name="not JSON").get_by_role("button", name="Resend").click()
    expect(dialog.locator("#resend-plan")).to_contain_text("1 were already sent there")
    dialog.get_by_role("button", name="Resend 1").click()
    expect(dialog).to_be_hidden()
    assert len(written(client, fake_run.topic)) == 3

    # Ticked ones, to another topic, and the way to the source record.
    elsewhere = new_name("elsewhere")
    Admin(client).create_topic(elsewhere, partitions=2, replication_factor=1)
    page.get_by_role("checkbox", name="Select all").check()
    page.get_by_role("button", name="Resend 3").click()
    dialog.get_by_label("Send to").select_option("other")
    dialog.get_by_label("Topic", exact=True).fill(elsewhere)
    expect(dialog.locator("#resend-plan")).to_contain_text("3 letters", timeout=CHANGE_MS_MAX)
    expect(dialog.locator("#resend-plan")).not_to_contain_text("no such topic", timeout=CHANGE_MS_MAX)
    dialog.get_by_role("button", name="Resend 3").click()
    expect(dialog).to_be_hidden()
    assert len(written(client, elsewhere)) == 3
    panel.get_by_role("link", name=fake_run.topic).click()
    expect(page.locator("#message")).to_contain_text("Partition 0, offset 0")

    open_page(page, console, "/audit")
    expect(page.locator("#audit, table").first).to_contain_text(f"pipeline {fake_run.name}, dead letters")
    assert json.loads((run_folder(fake_run.state, fake_run.name) / "status.json").read_text())["state"] == "running"


def test_hidden_fields_stay_hidden_in_letters_and_a_token_counts_once(
    page: Page, console: ConsoleProcess, fake_run: FakeRun, client: Client, bootstrap: str
) -> None:
    fake_run.add(100)
    producer = Producer({"bootstrap.servers": bootstrap})
    headers = letter(fake_run.name, fake_run.topic, 0, 'no good: "4711"')
    producer.produce(fake_run.letters, b'{"card": 4711, "city": "Bern"}', headers=headers)
    assert producer.flush(30) == 0
    open_page(page, console, "/c/default")
    api = f"{console.address}/api/clusters/default"
    letters = f"{api}/pipelines/{fake_run.name}/dead-letters"
    eventually(lambda: page.request.get(letters).json().get("letters"), 4)
    shown = page.request.get(f"{letters}/letters/0/3").json()
    assert (shown["message"]["value"]["json"]["card"], shown["source"]["state"]) == (4711, "another")

    assert page.request.put(f"{api}/masks", data={"rules": [f"{fake_run.topic}:value.card"]}).ok
    for address in ("letters", "letters/0/3"):
        assert "4711" not in page.request.get(f"{letters}/{address}").text(), "hidden in the source: hidden here"
    one = {"letters": [[0, 3]]}
    refused = page.request.post(f"{letters}/resends", data=one)
    assert (refused.status, refused.json()["error"]) == (403, "MASKED")
    assert page.request.put(f"{api}/masks", data={"rules": []}).ok

    sent = [page.request.post(f"{letters}/resends", data=one).json()["sent"] for _ in range(2)]
    sent += [
        page.request.post(f"{letters}/resends", data=one | {"again": True, "token": "a"}).json()["sent"]
        for _ in range(2)
    ]
    assert sent == [1, 0, 1, 0]
    assert len(written(client, fake_run.topic)) == 3
    wrong = ({"letters": [[0, 99]]}, one | {"to": fake_run.letters}, one | {"to": "no/topic"}, {"letters": [["0", 1]]})
    assert [page.request.post(f"{letters}/resends", data=body).status for body in wrong] == [404, 400, 400, 400]
    gone = page.request.post(f"{letters}/resends", data=one | {"to": new_name("nowhere")}).json()
    assert (gone["sent"], gone["refused"]) == (0, 1)
