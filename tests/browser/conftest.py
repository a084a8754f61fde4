"""A console process, and Debian's chromium. Errors on the JavaScript console fail the test."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from tests.conftest import ottla_command

from ottla.client.admin import Admin
from ottla.client.client import Client

CHROMIUM = "/usr/bin/chromium"
READY = re.compile(r"^ottla console ready on (\S+)$", re.MULTILINE)
LINK = re.compile(r"^ottla console: the link to sign in with is in (\S+) ", re.MULTILINE)
SECONDS_MAX = 60
# Messages of the browser about responses that a test provokes (401, 409, 503) are no errors of a page.
EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of (4\d\d|503)")


class ConsoleProcess:
    """`ottla console`, as a user starts it."""

    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        self.output = folder / "console.log"
        command = [*ottla_command(), "console", "--port", "0", "--data", str(folder), *words]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + SECONDS_MAX
        while (ready := READY.search(self.text)) is None:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)
        self.address = ready.group(1)
        link = LINK.search(self.text)  # none with sign-in
        self.token = Path(link[1]).read_text().strip().partition("token=")[2] if link is not None else ""

    def url(self, path: str) -> str:
        """What a browser opens: every view by a link with the token."""
        return (
            f"{self.address}{path}{'&' if '?' in path else '?'}token={self.token}"
            if self.token
            else self.address + path
        )

    def request(self, path: str, body: object = None, method: str | None = None) -> bytes:
        """As a program asks; raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return bytes(answer.read())

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        text = self.request(path, body, method)
        return json.loads(text) if text else None

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS_MAX) == 0, self.text
        assert "Traceback" not in self.text, self.text


MakeConsole = Callable[..., ConsoleProcess]


@pytest.fixture(scope="module")
def make_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeConsole]:
    made: list[ConsoleProcess] = []

    def make(*words: str) -> ConsoleProcess:
        made.append(ConsoleProcess(tmp_path_factory.mktemp("console"), *words))
        return made[-1]

    try:
        yield make
        for each in made:
            each.stop()
    finally:
        for each in made:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab in a fresh browser profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    page = context.new_page()
    problems: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and not EXPECTED.match(message.text):
            problems.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_default_timeout(SECONDS_MAX * 1000)
    yield page
    context.close()
    assert problems == []


@pytest.fixture(scope="module")
def console(make_console: MakeConsole, bootstrap: str) -> ConsoleProcess:
    return make_console("--bootstrap-server", bootstrap)


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    """A topic with three partitions and some records in the first one."""
    from tests.browser.outside import new_name, produce  # noqa: PLC0415 (it knows this file)

    name = new_name("topic")
    Admin(client).create_topic(name, partitions=3, replication_factor=1)
    produce(client, name, 10)
    return name
