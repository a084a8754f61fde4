"""How a group did, as the console remembers it over a restart."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from browser.conftest import ConsoleProcess
from browser.outside import eventually, new_name, open_page
from browser.test_watching import read_and_commit
from ottla.client.client import Client


def history(console: ConsoleProcess, group: str) -> dict[str, list[Any]]:
    address = f"{console.address}/api/clusters/default/groups/{group}/history?hours=1"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            found: dict[str, list[Any]] = json.load(answer)
            return found
    except urllib.error.HTTPError:  # the group has not been read yet
        return {"lag": []}


def test_the_lag_of_a_group_is_drawn_also_after_a_restart(
    page: Page, tmp_path: Path, bootstrap: str, topic: str, client: Client
) -> None:
    group = new_name("slow")
    read_and_commit(client, group, topic, 3)
    console = ConsoleProcess(tmp_path, "--bootstrap-server", bootstrap)
    try:
        eventually(lambda: history(console, group)["lag"], [7.0])
        first = history(console, group)
        assert first["lag_ms"][0] is not None
        assert first["lag_ms"][0] > 0
    finally:
        console.stop()
    read_and_commit(client, group, topic, 5)
    console = ConsoleProcess(tmp_path, "--bootstrap-server", bootstrap)
    try:
        eventually(lambda: history(console, group)["lag"], [7.0, 2.0])
        assert history(console, group)["at_ms"][0] == first["at_ms"][0]
        open_page(page, console, f"/c/default/groups/{group}/trend")
        for title in ("Lag in records", "Lag in seconds", "Consumed records a second"):
            expect(page.get_by_role("img", name=title).locator("canvas")).to_be_visible()
        page.get_by_label("Period").select_option("24")
        expect(page.get_by_role("img", name="Lag in records").locator("canvas")).to_be_visible()
        page.goto("about:blank")
    finally:
        console.stop()
