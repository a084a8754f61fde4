"""The load of brokers and the topology: set the address in the page, see plots, select brokers by keyboard. The numbers
are those of the broker's metrics endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, eventually, open_page, produce
from tests.conftest import FOREIGN_BOOTSTRAP, Broker

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.operations.metric_readings import read_metrics

ADDRESS = re.compile(r"metrics on (http://\S+)/metrics")
RECORDS = 500
pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="needs the metrics endpoint of a broker of its own")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("measured"), {"ottla.metrics.port": "0"})
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.discard()


@pytest.fixture(scope="module")
def endpoint(measured: Broker) -> str:
    found = ADDRESS.search(measured.log_text)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def console(make_console: MakeConsole, measured: Broker) -> ConsoleProcess:
    return make_console("--bootstrap-server", measured.bootstrap)


def ask(console: ConsoleProcess, path: str) -> Any:
    return console.ask(f"/api/clusters/default{path}")


def test_an_address_is_given_tried_and_leads_to_plots(
    page: Page, console: ConsoleProcess, measured: Broker, endpoint: str
) -> None:
    open_page(page, console, "/c/default")
    expect(page.get_by_text("rates come from offsets and commits")).to_be_visible()
    page.get_by_role("button", name="Set address").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Address").fill("http://{host}:1")
    dialog.get_by_role("button", name="Test").click()
    expect(dialog.get_by_text("no response from http://127.0.0.1:1/metrics")).to_be_visible()
    dialog.get_by_label("Address").fill(f"http://{{host}}:{endpoint.rpartition(':')[2]}")
    dialog.get_by_role("button", name="Test").click()
    expect(dialog.get_by_text("reachable", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("img", name="Bytes a second").locator("canvas")).to_be_visible(timeout=CHANGE_MS_MAX)
    expect(page.get_by_role("table", name="Load of the brokers")).to_contain_text("now")

    with Client(measured.bootstrap) as client:
        Admin(client).create_topic("loaded", partitions=1, replication_factor=1)
        produce(client, "loaded", RECORDS)
    open_page(page, console, "/c/default/brokers/1")
    for name in ("Records a second", "CPU", "Memory", "Network", "Free space on the fullest disk"):
        expect(page.get_by_role("img", name=name, exact=True).locator("canvas")).to_be_visible()
    expect(page.get_by_role("table", name="Requests")).to_contain_text("Produce", timeout=CHANGE_MS_MAX)

    def written() -> int:
        """All records of all points, each of which stands for the time since the one before."""
        history = ask(console, "/metrics/history")
        times, rates = history["at_ms"], history["columns"]["records_in"]
        return round(sum(rates[each] * (times[each] - times[each - 1]) / 1000 for each in range(1, len(times))) / 50)

    eventually(written, RECORDS // 50)
    told = read_metrics(endpoint)
    (broker,) = ask(console, "/metrics")["brokers"]
    assert broker["load"]["disk_size_bytes"] == next(iter(told.samples_of("ottla_log_directory_size_bytes"))).value
    assert ask(console, "/metrics")["address"].endswith(endpoint.rpartition(":")[2])
    open_page(page, console, "/audit")
    expect(page.get_by_text("PUT /metrics")).to_be_visible()
    assert broker["load"]["memory_bytes"] == pytest.approx(told.value_or_zero("process_resident_memory_bytes"), rel=0.2)


def test_the_graph_is_navigable_by_keyboard_and_described_as_text(
    page: Page, console: ConsoleProcess, measured: Broker
) -> None:
    open_page(page, console, "/c/default")
    node = page.get_by_role("link", name=re.compile("Broker 1 · alive · controller"))
    node.focus()
    expect(page.locator(".topology-words")).to_contain_text("Broker 1: alive · controller")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Broker 1")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_fifty_brokers_stand_side_by_side_and_none_on_another(page: Page, console: ConsoleProcess, width: int) -> None:
    """Too many brokers to start: a fake answer of the API with the real page."""
    row = {"host": "h", "port": 1, "replicas": 60, "leaders": 20, "under_replicated": 0, "rate": 0, "size_bytes": 0}
    brokers = [
        {**row, "broker": each, "is_alive": each != 17, "is_controller": each == 5, "rack": f"r{each % 5}"}
        for each in range(1, 51)
    ]
    links = [
        {"leader": one, "follower": other, "partitions": 3, "behind": int(other == 17)}
        for one in range(1, 51)
        for other in range(1, 51)
        if one not in (other, 17)
    ]
    page.route("**/topology", lambda route: route.fulfill(json={"brokers": brokers, "links": links}))
    page.set_viewport_size({"width": width, "height": 800})
    open_page(page, console, "/c/default")
    expect(page.locator("svg.topology a")).to_have_count(50)
    boxes = page.evaluate("""[...document.querySelectorAll("svg.topology a > rect:first-of-type")].map((each) => {
        const box = each.getBoundingClientRect();
        return [box.left, box.top, box.right, box.bottom];
    })""")
    for place, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= width
        for other in boxes[:place]:
            assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
    assert page.locator("svg.topology .node.gone").count() == 1
    before = page.locator("svg.topology path.link").count()
    page.locator('svg a[data-broker="9"]').focus()
    assert page.locator("svg.topology path.link").count() > before, "those of a chosen broker are drawn, too"
    page.keyboard.press("ArrowDown")
    eventually(lambda: page.evaluate("document.activeElement.dataset.broker") not in (None, "9"), True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_ottla_up_names_the_address_by_itself_and_the_page_cannot_change_it(
    page: Page, make_console: MakeConsole, measured: Broker, endpoint: str, tmp_path: Path
) -> None:
    """What `ottla up` starts the console with (tests/cluster/test_up.py starts all of it)."""
    other = make_console("--bootstrap-server", measured.bootstrap, "--metrics-url", f"1={endpoint}/metrics")
    eventually(lambda: [each["load"] is not None for each in ask(other, "/metrics")["brokers"]], [True])
    open_page(page, other, "/clusters")
    page.get_by_role("button", name="Metrics").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Address")).to_have_value(f"1={endpoint}/metrics")
    expect(dialog.get_by_role("button", name="Save")).to_have_count(0)
