"""`python -m bench.console`: the console with a large cluster and five viewers, in Debian's chromium.

One broker with 1,000 topics, 10,000 partitions and 2,000 groups: how soon lists are painted, sorted and filtered, the
longest task of any page, memory, requests at the broker. Then three brokers, one of which is killed during
viewing. Times are measured in the pages. `--quick` runs a tenth of the load, as a smoke test.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, sync_playwright

from bench.broker_process import HOST, SHARED_SETTINGS, free_port, properties
from bench.child import start_child, stop_child
from bench.errors import BenchError
from bench.ottla_process import OttlaProcess
from bench.paths import cache_folder
from bench.procfs import cpu_seconds, memory
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.groups import commit_offsets
from ottla.testing.cluster import Cluster

CHROMIUM = "/usr/bin/chromium"
READY = re.compile(r"^ottla console ready on (\S+)$", re.MULTILINE)
LINK = re.compile(r"^ottla console: the link to sign in with is in (\S+) ", re.MULTILINE)
COUNT = re.compile(r'ottla_request_seconds_count\{request="(\w+)"\} (\S+)')
OUR_OWN = ("Produce", "ApiVersions", "InitProducerId")  # requests of this benchmark's own producer
WAIT_SECONDS_MAX = 180.0
TOPICS, PARTITIONS, GROUPS, COMMITTED = 1_000, 10, 2_000, 5
VIEWERS = ("", "/topics", "/groups", "/brokers", "/topics/topic-0001")
ROUNDS = 5
QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
GOALS = {
    "first answer, s": 1.0,
    "idle memory, MB": 60.0,
    "memory with five viewers, MB": 120.0,
    "topics painted, s": 1.0,
    "groups painted, s": 1.0,
    "overview painted, s": 1.0,
    "sort, ms": 100.0,
    "filter, ms": 100.0,
    "longest task of a page, ms": 100.0,
    "requests a second at the broker": 5.0,
    "a change in the page, s": 2.0,
    "a dead broker, s": 5.0,
}
# In every page: the time of its first painted row, and its longest task.
WATCH = """
globalThis.seen = { painted: null, longest: 0 };
new PerformanceObserver((list) => {
    for (const each of list.getEntries()) seen.longest = Math.max(seen.longest, each.duration);
}).observe({ type: "longtask", buffered: true });
const look = () => {
    const isThere = document.querySelector("tbody tr[data-key], .figures .figure");
    if (!isThere) return requestAnimationFrame(look);
    requestAnimationFrame(() => { seen.painted = performance.now(); });
};
requestAnimationFrame(look);
"""
# Perform an action and wait for the frame in which the rows have changed.
UNTIL_CHANGED = """async ([kind, text]) => {
    const rows = () => [...document.querySelectorAll("tbody tr[data-key]")].slice(0, 5);
    const shown = () => rows().map((row) => row.dataset.key).join();
    const head = (each) => each.textContent.startsWith(text);
    const before = shown();
    const began = performance.now();
    if (kind === "sort") [...document.querySelectorAll("thead .sort")].find(head).click();
    else {
        const field = document.querySelector("input[type=search]");
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, text);
        field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    while (shown() === before) {
        await new Promise(requestAnimationFrame);
        if (performance.now() - began > 10000) throw new Error(`nothing changed: ${kind} ${text}`);
    }
    return performance.now() - began;
}"""


class MeasuredBroker(OttlaProcess):
    """A broker whose request counts are readable here."""

    def prepare(self) -> None:
        self.metrics_port = free_port()
        settings = {
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": str(self.data_folder),
            "ottla.metrics.port": str(self.metrics_port),
        }
        (self.folder / "server.properties").write_text(properties(settings | SHARED_SETTINGS))

    def requests(self) -> dict[str, float]:
        """How many of each kind were answered."""
        with urllib.request.urlopen(f"http://{HOST}:{self.metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = (COUNT.fullmatch(line) for line in lines)
        return {match[1]: float(match[2]) for match in found if match}


class Console:
    """`ottla console`, as a user starts it."""

    def __init__(self, bootstrap: str, folder: Path, *words: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        program = str(Path(sys.executable).parent / "ottla")
        self.log = folder / "console.log"
        began = time.monotonic()
        with self.log.open("wb") as output:
            command = [
                program,
                "console",
                "--bootstrap-server",
                bootstrap,
                "--port",
                "0",
                "--data",
                str(folder),
                *words,
            ]
            self.process: subprocess.Popen[bytes] = start_child(command, cwd=folder, output=output)
        wait_for(lambda: READY.search(self.log.read_text()) is not None, "the console")
        found = READY.search(self.log.read_text())
        assert found is not None
        self.address = found[1]
        link = LINK.search(self.log.read_text())
        assert link is not None
        self.link = Path(link[1]).read_text().strip()
        self.ask("/api/session")
        self.first_answer_s = time.monotonic() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stop_child(self.process, 10)

    def __repr__(self) -> str:
        return f"<Console {self.address}>"

    def ask(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.link.partition('token=')[2]}"}
        request = urllib.request.Request(f"{self.address}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def memory_mb(self) -> float:
        return memory(self.process.pid).rss_mb


def wait_for(look: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not look():
        if time.monotonic() > end:
            raise BenchError(f"{what} did not come")
        time.sleep(0.01)


def fill(bootstrap: str, topics: int, groups: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for first in range(0, topics, 100):
        made = admin.create_topics(
            [NewTopic(f"topic-{number:04}", PARTITIONS, 1) for number in range(first, first + 100)], request_timeout=120
        )
        for future in made.values():
            future.result(120)
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    for number in range(topics):
        producer.produce(f"topic-{number:04}", b"x" * 100, partition=number % PARTITIONS)
    assert producer.flush(120) == 0
    with Client(bootstrap) as client:
        for number in range(groups):
            topic = f"topic-{number % topics:04}"
            commit_offsets(client, f"group-{number:04}", {TopicPartition(topic, each): 0 for each in range(COMMITTED)})


def new_page(browser: Browser, console: Console) -> Page:
    """In a new browser profile with the link's cookie."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    context.request.get(console.link)
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(WAIT_SECONDS_MAX * 1000)
    return page


def painted_s(browser: Browser, console: Console, path: str) -> float:
    """Seconds from the navigation to the first row, in a new browser profile."""
    page = new_page(browser, console)
    page.goto(f"{console.address}{path}")
    while (found := page.evaluate("seen.painted")) is None:
        time.sleep(0.02)
    page.context.close()
    return float(found) / 1000


def measure_lists(browser: Browser, console: Console, figures: dict[str, float]) -> None:
    start = f"{console.address}/c/default"
    for name, path in (("topics", "/topics"), ("groups", "/groups"), ("overview", "")):
        figures[f"{name} painted, s"] = statistics.median(
            painted_s(browser, console, f"/c/default{path}") for _ in range(ROUNDS)
        )
    sorts, filters = [], []
    for path, titles in (("/topics", ("Topic", "Topic", "Topic")), ("/groups", ("Group", "Group", "Group"))):
        page = new_page(browser, console)
        page.goto(start + path)
        page.locator("tbody tr[data-key]").first.wait_for()
        sorts += [page.evaluate(UNTIL_CHANGED, ["sort", title]) for title in titles]
        filters += [page.evaluate(UNTIL_CHANGED, ["filter", text]) for text in ("77", "777", "7", "")]
        page.context.close()
    figures["sort, ms"], figures["filter, ms"] = max(sorts), max(filters)


def measure_change(browser: Browser, console: Console, figures: dict[str, float]) -> None:
    page = new_page(browser, console)
    page.goto(f"{console.address}/c/default/topics?q=made-here")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("made-here")
    began = time.monotonic()
    page.get_by_role("button", name="Create", exact=True).click()
    page.locator('tr[data-key="made-here"]').wait_for()
    figures["a change in the page, s"] = time.monotonic() - began
    page.context.close()


def measure_viewers(
    browser: Browser, console: Console, broker: MeasuredBroker, seconds: float, figures: dict[str, float]
) -> None:
    """Five viewers while records arrive: cost and smoothness."""
    pages = []
    for path in VIEWERS:
        page = new_page(browser, console)
        page.goto(f"{console.address}/c/default{path}")
        page.locator("tbody tr[data-key], .figures .figure").first.wait_for()
        pages.append(page)
    for page in pages:
        page.evaluate("seen.longest = 0")
    producer = Producer({"bootstrap.servers": broker_address(broker), **QUIET})
    for number in range(50):  # it knows them all from now on
        producer.produce(f"topic-{number:04}", b"x")
    producer.flush(30)
    requests, cpu, began = broker.requests(), cpu_seconds(console.process.pid), time.monotonic()
    sent, most = 0, 0.0
    while time.monotonic() - began < seconds:
        for number in range(5):
            producer.produce(f"topic-{(sent + number) % 50:04}", b"x" * 100)
        sent += 5
        producer.flush(30)
        most = max(most, console.memory_mb())
        pages[int(time.monotonic()) % len(pages)].wait_for_timeout(500)
    took = time.monotonic() - began
    asked = {name: count - requests.get(name, 0.0) for name, count in broker.requests().items() if name not in OUR_OWN}
    figures["requests a second at the broker"] = sum(asked.values()) / took
    print("requests a second:", {name: round(count / took, 2) for name, count in asked.items() if count})
    figures["console's processor, % of a core"] = 100 * (cpu_seconds(console.process.pid) - cpu) / took
    figures["memory with five viewers, MB"] = most
    figures["longest task of a page, ms"] = max(page.evaluate("seen.longest") for page in pages)
    for page in pages:
        page.context.close()


def broker_address(broker: MeasuredBroker) -> str:
    return f"{HOST}:{broker.port}"


def measure_dead_broker(browser: Browser, folder: Path, figures: dict[str, float]) -> None:
    with Cluster(3, folder=folder) as cluster, Console(cluster.bootstrap, folder / "console-3") as console:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        for future in admin.create_topics([NewTopic("held", 6, 3)]).values():
            future.result(60)
        page = new_page(browser, console)
        page.goto(f"{console.address}/c/default/brokers")
        page.locator("tbody tr[data-key]").nth(2).wait_for()
        wait_for(lambda: console.ask("/api/clusters/default/overview")["partitions"] >= 6, "the topic")
        victim = list(cluster.brokers)[2]
        began = time.monotonic()
        victim.kill()
        page.get_by_text("gone", exact=True).first.wait_for()
        figures["a dead broker, s"] = time.monotonic() - began
        page.context.close()


def measure(options: argparse.Namespace, browser: Browser, folder: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    topics, groups = (100, 200) if options.quick else (TOPICS, GROUPS)
    with MeasuredBroker(folder / "broker.log") as broker:
        with Console(broker_address(broker), folder / "console-empty") as console:
            figures["first answer, s"] = console.first_answer_s
            time.sleep(5)
            figures["idle memory, MB"] = console.memory_mb()
        fill(broker_address(broker), topics, groups)
        with Console(broker_address(broker), folder / "console-full") as console:

            def is_read() -> bool:
                found = console.ask("/api/clusters/default/overview")
                return bool(found["topics"] >= topics and found["groups"] >= groups and found["size_bytes"])

            wait_for(is_read, "the cluster in the console")
            measure_lists(browser, console, figures)
            measure_change(browser, console, figures)
            measure_viewers(browser, console, broker, 10 if options.quick else 60, figures)
    measure_dead_broker(browser, folder, figures)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description="The console under load.")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    options = parser.parse_args()
    folder = cache_folder() / "console"
    folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        figures = measure(options, browser, folder)
        browser.close()
    print(f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    for name, figure in figures.items():
        goal = GOALS.get(name)
        mark = "" if goal is None else f"(goal {goal:g}) {'met' if figure <= goal else 'MISSED'}"
        print(f"{name:36} {figure:8.2f}  {mark}")
    (folder / "results.json").write_text(json.dumps({"load": load, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
