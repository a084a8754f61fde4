"""Takes the pictures of the console for README and docs: `python tools/console_pictures.py` (chromium, two minutes).

Three brokers with some topics and groups, records coming in all the while, then docs/images/console-*.png.
"""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
SECONDS = 120  # of traffic before the pictures are taken
TOPICS = {"orders": 6, "payments": 6, "clicks": 12, "shipments": 3, "customers": 3, "audit-trail": 1}
READERS = {"billing": "orders", "warehouse": "shipments", "recommender": "clicks", "fraud-check": "payments"}
COLOURS = 200
# Name of the picture, address, theme, height.
PICTURES = (
    ("overview", "/c/default", "light", 1130),
    ("topics", "/c/default/topics", "light", 620),
    ("messages", "/c/default/topics/orders/messages", "light", 760),
    ("groups", "/c/default/groups", "light", 560),
    ("group", "/c/default/groups/billing", "dark", 620),
    ("broker", "/c/default/brokers/1", "dark", 980),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster() -> Iterator[tuple[str, str]]:
    """The address of the brokers and the console's link of an `ottla up`."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "up.log"
        words = ["--brokers", "3", "--data", f"{folder}/data", "--port", "0", "--console-port", str(port)]
        command = [str(Path(sys.executable).parent / "ottla"), "up", *words]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603 (our own command)
        try:
            while "console ready" not in (text := log.read_text()):
                if process.poll() is not None:
                    raise SystemExit(text)
                time.sleep(0.2)
            found = re.search(r"brokers +(\S+)", text)
            assert found is not None
            yield found[1], (Path(folder) / "data" / "console" / f"console-{port}.link").read_text().strip()
        finally:
            process.terminate()
            process.wait(60)


def record(topic: str, number: int) -> str:
    found = {"id": number, "customer": f"c-{number % 97:03}", "amount": round(random.uniform(3, 400), 2)}  # noqa: S311
    return json.dumps({**found, "currency": "EUR", "items": [f"{topic}-{number % 7}", f"{topic}-{number % 11}"]})


def traffic(bootstrap: str, is_over: threading.Event) -> None:
    """Producers and consumers; one group falls behind."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 3) for name, count in TOPICS.items()]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    readers = {}
    for group, topic in READERS.items():
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        readers[group] = Consumer({**settings, "auto.commit.interval.ms": 1000})
        readers[group].subscribe([topic])
    began, number = time.monotonic(), 0
    while not is_over.is_set():
        passed = time.monotonic() - began
        for topic, weight in zip(TOPICS, (6, 4, 9, 2, 1, 1), strict=True):
            for _ in range(weight + int(passed / 20) % 4):
                number += 1
                producer.produce(topic, record(topic, number), key=f"c-{number % 97:03}")
        producer.poll(0)
        for group, reader in readers.items():
            reader.consume(5 if group == "fraud-check" else 40, timeout=0.02)
        time.sleep(0.05)
    producer.flush(30)
    for reader in readers.values():
        reader.close()


def take(link: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, path, theme, height in PICTURES:
            context = browser.new_context(viewport={"width": 1280, "height": height}, locale="en-GB")
            context.add_init_script(f"localStorage.setItem('ottla.theme', '{theme}')")
            page = context.new_page()
            context.request.get(link)  # it has the cookie from here on
            page.goto(link.partition("/?")[0] + path)
            page.locator("tbody tr[data-key], .u-over").first.wait_for()
            if "groups" in path:
                page.get_by_text("OK", exact=True).first.wait_for()
            page.wait_for_timeout(2500)  # plots
            small(page.screenshot(), IMAGES / f"console-{name}.png")
            context.close()
        browser.close()


def small(picture: bytes, path: Path) -> None:
    """Reduce the image to 200 colours, which are enough for a page."""
    Image.open(BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    with cluster() as (brokers, console):
        over = threading.Event()
        writer = threading.Thread(target=traffic, args=(brokers, over))
        writer.start()
        try:
            time.sleep(SECONDS)
            take(console)
        finally:
            over.set()
            writer.join()
