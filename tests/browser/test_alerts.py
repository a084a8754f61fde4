"""Alerts and trends in the console: a rule and a receiver made in the page, a real group that is late, a server that is
told, and all of it over a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess
from tests.browser.outside import CHANGE_MS_MAX, eventually, new_name, open_page, produce
from tests.browser.test_watching import read_and_commit
from tests.webhooks import Inbox

from ottla.client.client import Client

OPEN_MS_MAX = 30_000  # log end offsets are read every ten seconds, rules evaluated every three


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    yield made
    made.close()


def add_receiver(page: Page, console: ConsoleProcess, name: str, address: str) -> None:
    open_page(page, console, "/c/default/alerts/receivers")
    page.get_by_role("button", name="Add receiver").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Kind").select_option("slack")
    dialog.get_by_label("Webhook URL").fill(address)
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator(f'[data-receiver="{name}"]')).to_be_visible()


def history(console: ConsoleProcess, group: str) -> dict[str, list[Any]]:
    """The history of a group in the console."""
    found: dict[str, list[Any]] = console.ask(f"/api/clusters/default/groups/{group}/history?hours=1")
    return found


def test_a_rule_of_the_page_tells_of_a_late_group_once_and_of_its_end_also_after_a_restart(
    page: Page, tmp_path: Path, bootstrap: str, topic: str, client: Client, inbox: Inbox
) -> None:
    group, rule = new_name("late"), new_name("behind")
    read_and_commit(client, group, topic, 10)
    produce(client, topic, 5)
    words = ("--bootstrap-server", bootstrap, "--allow-private-addresses")
    console = ConsoleProcess(tmp_path, *words)
    try:
        add_receiver(page, console, "ops", inbox.address)
        card = page.locator('[data-receiver="ops"]')
        assert "key-of-the-bot" not in card.inner_text()
        card.get_by_role("button", name="Send test").click()
        expect(card.get_by_text("Delivered.")).to_be_visible()
        assert "there is no alert" in inbox.bodies[0]["text"]

        page.get_by_role("link", name="Rules").click()
        page.get_by_role("button", name="Add rule").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").fill(rule)
        dialog.get_by_label("Condition").select_option("lag")
        dialog.get_by_label("Lag above (records)").fill("3")
        dialog.get_by_label("Groups").fill(group)
        expect(dialog.get_by_label("ops")).to_be_checked()
        dialog.get_by_role("button", name="Save").click()
        expect(page.locator(f'[data-rule="{rule}"]').get_by_text("1 open")).to_be_visible(timeout=OPEN_MS_MAX)
        badge = page.locator(".top").get_by_role("link", name="1 alert")
        expect(badge).to_be_visible()
        eventually(lambda: inbox.told(rule), ["OPEN"])
        open_page(page, console, "/c/default")
        expect(page.get_by_text(f"{rule}: group {group}, 5 records behind, more than 3")).to_be_visible()
        eventually(lambda: bool(history(console, group)["lag"]), True)
        remembered = history(console, group)
        badge.click()
        expect(page.get_by_role("link", name=f"group {group}")).to_be_visible()
        page.goto("about:blank")
    finally:
        console.stop()
    console = ConsoleProcess(tmp_path, *words)
    try:
        open_page(page, console, "/c/default/alerts")
        expect(page.get_by_role("link", name=f"group {group}")).to_be_visible()
        assert inbox.told(rule) == ["OPEN"]
        read_and_commit(client, group, topic, 5)
        expect(page.get_by_text("No open alerts.")).to_be_visible(timeout=OPEN_MS_MAX)
        eventually(lambda: inbox.told(rule), ["OPEN", "CLOSED"])
        page.get_by_role("link", name="History").click()
        expect(page.get_by_role("row").filter(has_text=rule).get_by_text("closed")).to_be_visible()

        eventually(lambda: len(history(console, group)["lag"]) > len(remembered["lag"]), True)
        found = history(console, group)
        assert found["at_ms"][: len(remembered["at_ms"])] == remembered["at_ms"]
        assert found["lag"][0] == 5
        open_page(page, console, f"/c/default/groups/{group}/trend")
        for title in ("Lag in records", "Lag in seconds", "Consumed records a second"):
            expect(page.get_by_role("img", name=title).locator("canvas")).to_be_visible()

        open_page(page, console, "/c/default/alerts/rules")
        card = page.locator(f'[data-rule="{rule}"]')
        card.get_by_role("button", name="Silence").click()
        page.get_by_role("dialog").get_by_role("button", name="Silence").click()
        expect(page.get_by_role("button", name="End now")).to_be_visible()
        card.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No rules yet")).to_be_visible(timeout=CHANGE_MS_MAX)
        page.goto("about:blank")
    finally:
        console.stop()
