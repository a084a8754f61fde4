"""Verdicts on groups of real consumers, and pipelines, in the console."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, eventually, new_name, open_page

from ottla.client.client import Client
from ottla.client.transactions import describe_transactions
from ottla.operations.lag import STUCK_MS


def read_and_commit(client: Client, group: str, topic: str, count: int) -> None:
    """Consume records of the first partition as a member of the group, commit, and leave."""
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


def test_a_stopped_group_has_another_verdict_than_one_that_keeps_up(
    page: Page, console: ConsoleProcess, topic: str, client: Client
) -> None:
    late, prompt = new_name("late"), new_name("prompt")
    read_and_commit(client, late, topic, 3)
    read_and_commit(client, prompt, topic, 10)
    open_page(page, console, "/c/default/groups")
    expect(page.locator(f'tr[data-key="{late}"]').get_by_text("ERR", exact=True)).to_be_visible(
        timeout=STUCK_MS + CHANGE_MS_MAX
    )
    expect(page.locator(f'tr[data-key="{prompt}"]').get_by_text("OK", exact=True)).to_be_visible()

    page.get_by_role("link", name=late).click()
    row = page.locator(f'tr[data-key="{topic}-0"]')
    expect(row.get_by_text("STOP", exact=True)).to_be_visible()
    expect(row).to_contain_text(re.compile(r"\d (s|min)"))  # how long its first unread record has waited
    read_and_commit(client, late, topic, 7)
    expect(row.get_by_text("OK", exact=True)).to_be_visible(timeout=CHANGE_MS_MAX)


def test_an_open_transaction_is_aborted(page: Page, console: ConsoleProcess, topic: str, client: Client) -> None:
    name = new_name("payments")
    producer = Producer({"bootstrap.servers": str(client.bootstrap[0]), "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never seen", partition=0)
    assert producer.flush(30) == 0
    open_page(page, console, "/c/default/transactions")
    row = page.locator(f'tr[data-key="{name}"]')
    expect(row).to_contain_text("Ongoing", timeout=CHANGE_MS_MAX)
    expect(row).to_contain_text(f"{topic}-0")
    row.get_by_role("button", name="Abort").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort").click()
    expect(row).to_contain_text("Abort", timeout=CHANGE_MS_MAX)
    # A second check would find it done, and start the next one, which is empty.
    ended = ("CompleteAbort", "Empty")
    eventually(lambda: getattr(describe_transactions(client, [name])[name], "state", None) in ended, True)
    page.get_by_role("button", name="Find hanging transactions").click()
    page.get_by_role("dialog").get_by_role("button", name="Search").click()
    expect(page.get_by_text("No hanging transactions.")).to_be_visible()


PIPELINE = """
import os, signal, socket, sys
from pathlib import Path
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import Status, now_ms, process_start
from ottla.pipelines.running.status import RunFolder

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
status = Status("page-views", os.getpid(), process_start(os.getpid()), socket.gethostname(), "starting")
run = RunFolder(Path(sys.argv[1]), status)
run.open()
step = StepCount("views", 1, "parse", 1200, 1100, 60, 10, 30, 1100)
run.change("running", queries=[Snapshot("views", now_ms(), 3, 4, 1200, 300, 150.0, 140.0, 800, 17, steps=(step,))])
signal.sigwait([signal.SIGTERM])
run.change("stopped")
"""


def test_a_pipeline_is_shown_with_its_steps_and_stopped(
    page: Page, make_console: MakeConsole, bootstrap: str, tmp_path: Path
) -> None:
    """What a run writes is written by the class that runs use, in a process of its own, without Spark."""
    console = make_console("--bootstrap-server", bootstrap, "--pipelines", str(tmp_path))
    open_page(page, console, "/c/default/pipelines")
    expect(page.get_by_text("No pipelines yet")).to_be_visible()
    with subprocess.Popen([sys.executable, "-c", PIPELINE, str(tmp_path)]) as process:
        try:
            row = page.locator('tr[data-key="page-views"]')
            expect(row.get_by_text("running", exact=True)).to_be_visible(timeout=CHANGE_MS_MAX)
            expect(row).to_contain_text("17")
            page.get_by_role("link", name="page-views").click()
            step = page.locator('tr[data-key="views views 1"]')
            assert [step.locator("td").nth(cell).inner_text() for cell in range(3, 8)] == [
                "1,200",
                "1,100",
                "60",
                "10",
                "30",
            ]
            page.get_by_role("button", name="Stop").click()
            page.get_by_role("dialog").get_by_role("button", name="Stop").click()
            expect(page.locator(".figures").get_by_text("stopped", exact=True)).to_be_visible(timeout=CHANGE_MS_MAX)
            assert process.wait(CHANGE_MS_MAX / 1000) == 0
            expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        finally:
            process.kill()
