"""The console with hostile names, sign-in, several tabs, small screens and faults."""

from __future__ import annotations

import re
import urllib.error

from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, ends, eventually, new_name, open_page
from tests.conftest import BrokerFactory

from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.groups import commit_offsets


def test_a_malicious_name_is_text(page: Page, console: ConsoleProcess, client: Client, topic: str) -> None:
    group = "<img src=x onerror=alert(1)>/../?&#%2f\u202e" + new_name("x")
    commit_offsets(client, group, {TopicPartition(topic, 0): 1})
    open_page(page, console, "/c/default/groups")
    page.get_by_label("Find groups").fill(group[-8:])
    link = page.locator("tbody tr[data-key] a")
    expect(link).to_have_text(group, timeout=CHANGE_MS_MAX)
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(group)
    expect(page.locator(f'tr[data-key="{topic}-0"]')).to_be_visible()
    assert page.locator("img[src=x]").count() == 0


def test_keyboard_alone_is_enough(page: Page, console: ConsoleProcess, topic: str) -> None:
    open_page(page, console, "/c/default/topics")
    expect(page.get_by_role("link", name=topic)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(topic)
    expect(page.locator("tbody tr[data-key]")).to_have_count(1)
    assert f"q={topic}" in page.url, "the view is an address"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.key") == topic:
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=topic)).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Find topics")).to_have_value(topic)


def test_it_speaks_chinese_is_dark_and_fits_a_telephone(browser: Browser, console: ConsoleProcess, topic: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 780}, locale="zh-CN", color_scheme="dark")
    page = context.new_page()
    open_page(page, console, f"/c/default/topics/{topic}")
    expect(page.get_by_role("link", name="设置")).to_be_visible()
    expect(page.get_by_role("button", name="增加分区")).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_twelve_tabs_share_one_stream(browser: Browser, console: ConsoleProcess, client: Client) -> None:
    context = browser.new_context()
    pages = [context.new_page() for _ in range(12)]
    for page in pages:
        page.goto(console.url("/c/default/topics"), wait_until="commit")
    name = new_name("tabs")
    Admin(client).create_topic(name, partitions=1, replication_factor=1)
    for page in pages:
        page.bring_to_front()
        expect(page.get_by_role("link", name=name)).to_be_visible(timeout=CHANGE_MS_MAX)
    context.close()


def test_a_signed_in_person_has_the_rights_of_the_role(
    page: Page, make_console: MakeConsole, bootstrap: str, topic: str
) -> None:
    console = make_console("--bootstrap-server", bootstrap, "--sign-in")
    password = re.search(r"with the password (\S+)", console.text)
    assert password is not None
    open_page(page, console, "/c/default/topics")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong name or password")
    page.get_by_label("Password").fill(password.group(1))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)

    page.get_by_role("link", name="People").click()
    page.get_by_role("button", name="Add person").click()
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("vera's password")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="vera")).to_be_visible()
    page.get_by_role("link", name="Audit").click()
    expect(page.locator("tbody tr[data-key]").first).to_contain_text("vera")

    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("vera's password")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Topics").click()
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)
    expect(page.get_by_role("button", name="Create topic")).to_have_count(0)
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    refused = page.request.delete(f"{console.address}/api/clusters/default/topics/{topic}")
    assert refused.status == 403


def test_a_second_cluster_is_tested_added_and_forgotten(
    page: Page, console: ConsoleProcess, bootstrap: str, topic: str
) -> None:
    open_page(page, console, "/clusters")
    page.get_by_role("button", name="Add cluster").click()
    page.get_by_label("Name").fill("second")
    page.get_by_label("Bootstrap servers").fill("127.0.0.1:1")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_role("alert")).to_contain_text("connection refused")
    page.get_by_label("Bootstrap servers").fill(bootstrap)
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_role("dialog").get_by_text("Reached: cluster")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="second").get_by_role("link").click()
    page.get_by_role("link", name="Topics").click()
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)
    assert page.url.endswith("/c/second/topics")
    page.get_by_role("link", name="Clusters").click()
    page.get_by_role("button", name="Forget").click()
    page.get_by_label(re.compile("^Type")).fill("second")
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.get_by_role("heading", name="second")).to_have_count(0)


def test_a_stopped_broker_is_reported_and_found_again(
    page: Page, make_console: MakeConsole, broker_factory: BrokerFactory
) -> None:
    broker = broker_factory()
    console = make_console("--bootstrap-server", broker.bootstrap)
    open_page(page, console, "/c/default")
    expect(page.get_by_text("All partitions have a leader")).to_be_visible(timeout=CHANGE_MS_MAX)
    broker.kill9()
    expect(page.get_by_role("alert").first).to_contain_text("connection refused", timeout=CHANGE_MS_MAX)
    expect(page.get_by_text("All partitions have a leader")).to_be_visible()
    broker.start()
    expect(page.get_by_role("alert")).to_have_count(0, timeout=CHANGE_MS_MAX)


def test_the_api_is_described_and_says_what_kafkas_tools_say(
    console: ConsoleProcess, client: Client, topic: str
) -> None:
    described = console.ask("/api/openapi.json")
    assert "/api/clusters/{cluster}/topics/{topic}" in described["paths"]

    def read() -> list[int | None]:
        try:
            return [item["end"] for item in console.ask(f"/api/clusters/default/topics/{topic}")["partitions"]]
        except urllib.error.HTTPError:
            return []

    eventually(read, ends(client, topic))


def test_without_the_token_of_the_link_a_browser_gets_the_page_that_asks_for_it(
    page: Page, console: ConsoleProcess, topic: str
) -> None:
    page.goto(f"{console.address}/c/default/topics")
    expect(page.get_by_text("This console serves the user who started it.")).to_be_visible()
    expect(page.get_by_role("navigation")).to_have_count(0)
    page.get_by_label("Token").fill("guess")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("this is not the token of this console")
    page.get_by_label("Token").fill(console.url("/"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)


def test_a_link_signs_in_leaves_the_address_bar_and_outlives_the_browser(
    browser: Browser, make_console: MakeConsole, console: ConsoleProcess, bootstrap: str, topic: str
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(console.url("/c/default/topics?q=" + topic))
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)
    assert page.url == f"{console.address}/c/default/topics?q={topic}"
    assert console.token not in str(page.evaluate("[document.cookie, JSON.stringify(localStorage), history.length]"))
    other = make_console("--bootstrap-server", bootstrap)  # of the same host: it has a cookie of its own
    page.goto(other.url("/c/default/topics?q=" + topic))
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)
    kept = context.storage_state()
    assert all(cookie["httpOnly"] and cookie["sameSite"] == "Strict" for cookie in kept["cookies"])
    context.close()
    context = browser.new_context(storage_state=kept)
    page = context.new_page()
    for each in (console, other):
        page.goto(f"{each.address}/c/default/topics?q={topic}")
        expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_MS_MAX)
    context.close()


def test_an_address_that_is_none_is_a_page_that_says_so(page: Page, console: ConsoleProcess) -> None:
    open_page(page, console, "/c/default")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto(f"{console.address}/c/%zz/topics")
    expect(page.get_by_text("There is no cluster %zz")).to_be_visible()
    page.goto(f"{console.address}/c/default/topics/a%zzb%20c")
    expect(page.get_by_text("a%zzb c").first).to_be_visible()
    for unknown in ("/nothing", "/c/default/%ff", "/%zz"):
        page.goto(f"{console.address}{unknown}")
        expect(page.get_by_text("There is no such page")).to_be_visible()
        expect(page.get_by_role("navigation")).to_be_visible()
    page.goto(f"{console.address}/api/nothing")
    expect(page.get_by_role("heading", name="404")).to_be_visible()
