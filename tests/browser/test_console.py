"""The console as people use it: each test changes something in the page and looks at it with a client from outside,
or changes something outside and waits for the page to show it.
"""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.conftest import ConsoleProcess, MakeConsole
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs
from ottla.client.groups import commit_offsets, committed_offsets, list_groups
from ottla.client.offsets import EARLIEST, LATEST, list_offsets

CHANGE_SECONDS_MAX = 20_000  # in ms, for whatever the page shows by itself on a busy machine


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
    name = new_name("topic")
    Admin(client).create_topic(name, partitions=3, replication_factor=1)
    produce(client, name, 10)
    return name


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def produce(client: Client, topic: str, count: int, partition: int = 0) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 (what a user would have)

    producer = Producer({"bootstrap.servers": str(client.bootstrap[0])})
    for number in range(count):
        producer.produce(topic, value=f"record {number}".encode(), partition=partition)
    assert producer.flush(30) == 0


def ends(client: Client, topic: str, when: int = LATEST) -> list[int]:
    places = [TopicPartition(topic, number) for number in range(3)]
    found, failures = list_offsets(client, places, when)
    assert not failures
    return [found[place].offset for place in places]


def eventually(look: object, wanted: object) -> None:
    deadline = time.monotonic() + CHANGE_SECONDS_MAX / 1000
    assert callable(look)
    while (found := look()) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        time.sleep(0.05)


def open_page(page: Page, console: ConsoleProcess, address: str) -> None:
    page.goto(f"{console.address}{address}")


def test_a_topic_is_created_configured_enlarged_emptied_and_deleted(
    page: Page, console: ConsoleProcess, client: Client
) -> None:
    name = new_name("life")
    open_page(page, console, "/c/default/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Replication factor").fill("1")
    page.get_by_label("Settings").fill("retention.ms=3600000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name=name).click()
    assert len(Admin(client).topic(name).partitions) == 2

    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Find settings").fill("retention.ms")
    page.locator('tr[data-key="retention.ms"]').get_by_role("button", name="Change").click()
    page.get_by_label("Value").fill("7200000")
    page.get_by_role("button", name="Save").click()
    expect(page.locator('tr[data-key="retention.ms"]')).to_contain_text("7200000")
    assert {item.name: item.value for item in Admin(client).topic_configs([name])[name]}["retention.ms"] == "7200000"

    page.get_by_role("button", name="Add partitions").click()
    page.get_by_label("Partitions in all").fill("3")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Partitions").click()
    expect(page.locator('tr[data-key="2"]')).to_be_visible()
    assert len(Admin(client).topic(name).partitions) == 3

    produce(client, name, 5)
    expect(page.locator('tr[data-key="0"] td').nth(5)).to_have_text("5", timeout=CHANGE_SECONDS_MAX)
    page.get_by_role("button", name="Empty").click()
    page.get_by_label(re.compile("^Type")).fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Empty").click()
    expect(page.locator('tr[data-key="0"] td').nth(4)).to_have_text("5", timeout=CHANGE_SECONDS_MAX)
    assert ends(client, name, EARLIEST) == [5, 0, 0]

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    page.get_by_label(re.compile("^Type")).fill(name)
    dialog.get_by_role("button", name="Delete").click()
    page.wait_for_url("**/c/default/topics")
    assert name not in [topic.name for topic in Admin(client).topics()]
    expect(page.get_by_role("link", name=name)).to_have_count(0)


def test_what_the_cluster_refuses_is_told_and_the_dialog_stays(
    page: Page, console: ConsoleProcess, topic: str, client: Client
) -> None:
    open_page(page, console, "/c/default/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill(topic)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(f"Topic '{topic}' already exists.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_of_two_operators_the_second_is_told_what_has_changed(
    page: Page, console: ConsoleProcess, topic: str, client: Client
) -> None:
    open_page(page, console, f"/c/default/topics/{topic}/settings?q=retention.ms")
    page.locator('tr[data-key="retention.ms"]').get_by_role("button", name="Change").click()
    alter_configs(client, Resource.TOPIC, topic, {"retention.ms": "111111"}, [])
    page.get_by_label("Value").fill("222222")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("retention.ms is 111111 by now")


def test_several_topics_are_deleted_at_once(page: Page, console: ConsoleProcess, client: Client) -> None:
    prefix = new_name("many")
    for number in range(3):
        Admin(client).create_topic(f"{prefix}-{number}", partitions=1, replication_factor=1)
    open_page(page, console, f"/c/default/topics?q={prefix}")
    for number in range(2):
        page.get_by_role("checkbox", name=f"Select {prefix}-{number}").check(timeout=CHANGE_SECONDS_MAX)
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("Type 2 to confirm").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("tbody tr[data-key]")).to_have_count(1)
    assert [each.name for each in Admin(client).topics() if each.name.startswith(prefix)] == [f"{prefix}-2"]


def test_what_happens_outside_appears_by_itself(
    page: Page, console: ConsoleProcess, client: Client, topic: str
) -> None:
    other = new_name("outside")
    open_page(page, console, "/c/default/topics")
    expect(page.get_by_role("link", name=topic)).to_be_visible()
    Admin(client).create_topic(other, partitions=1, replication_factor=1)
    expect(page.get_by_role("link", name=other)).to_be_visible(timeout=CHANGE_SECONDS_MAX)
    produce(client, other, 3)
    expect(page.locator(f'tr[data-key="{other}"] td').nth(5)).to_have_text("3", timeout=CHANGE_SECONDS_MAX)


def test_a_group_is_shown_with_its_lag_reset_after_a_look_at_the_plan_and_deleted(
    page: Page, console: ConsoleProcess, client: Client, topic: str
) -> None:
    group = new_name("group")
    place = TopicPartition(topic, 0)
    commit_offsets(client, group, {place: 4})
    open_page(page, console, "/c/default/groups")
    expect(page.locator(f'tr[data-key="{group}"] td').nth(5)).to_have_text("6", timeout=CHANGE_SECONDS_MAX)
    page.get_by_role("link", name=group).click()
    expect(page.locator(f'tr[data-key="{topic}-0"]')).to_contain_text("6")

    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("Where to").select_option("shift-by")
    page.get_by_label("Records, back with a minus").fill("-1")
    page.get_by_role("textbox", name="Topics").fill(f"{topic}:0")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_label(f"Offset of {topic}-0")).to_have_value("3")
    assert committed_offsets(client, group)[place].offset == 4, "a plan changes nothing"
    page.get_by_label(f"Offset of {topic}-0").fill("99")
    page.get_by_label(f"Offset of {topic}-0").press("Tab")
    expect(page.get_by_text("99 is not in the log")).to_be_visible()
    expect(page.get_by_label(f"Offset of {topic}-0")).to_have_value("10")
    page.get_by_role("button", name="Reset now").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert committed_offsets(client, group)[place].offset == 10
    expect(page.locator(f'tr[data-key="{topic}-0"] td').nth(4)).to_have_text("0", timeout=CHANGE_SECONDS_MAX)

    page.get_by_role("button", name="Delete").click()
    page.get_by_label(re.compile("^Type")).fill(group)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/c/default/groups")
    assert group not in [each.group_id for each in list_groups(client)]


def test_brokers_folders_settings_and_the_overview_say_what_the_cluster_says(
    page: Page, console: ConsoleProcess, client: Client, topic: str
) -> None:
    open_page(page, console, "/c/default")
    expect(page.get_by_text("All partitions have leaders and all their replicas.")).to_be_visible()
    page.get_by_role("link", name="Brokers").click()
    page.locator("tbody tr[data-key]").first.press("Enter")
    expect(page.get_by_role("heading", name=re.compile(r"Broker \d+"))).to_be_visible()
    expect(page.locator("tbody tr[data-key]").first).to_contain_text("healthy")
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Find settings").fill("log.dirs")
    expect(page.locator('tr[data-key="log.dirs"]')).to_contain_text("server.properties")


def test_a_malicious_name_is_text(page: Page, console: ConsoleProcess, client: Client, topic: str) -> None:
    group = "<img src=x onerror=alert(1)>/../?&#%2f\u202e" + new_name("x")
    commit_offsets(client, group, {TopicPartition(topic, 0): 1})
    open_page(page, console, "/c/default/groups")
    page.get_by_label("Find groups").fill(group[-8:])
    link = page.locator("tbody tr[data-key] a")
    expect(link).to_have_text(group, timeout=CHANGE_SECONDS_MAX)
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
        page.goto(f"{console.address}/c/default/topics", wait_until="commit")
    name = new_name("tabs")
    Admin(client).create_topic(name, partitions=1, replication_factor=1)
    for page in pages:
        page.bring_to_front()
        expect(page.get_by_role("link", name=name)).to_be_visible(timeout=CHANGE_SECONDS_MAX)
    context.close()


def test_who_signs_in_may_do_what_his_role_says(
    page: Page, make_console: MakeConsole, bootstrap: str, topic: str
) -> None:
    console = make_console("--bootstrap-server", bootstrap, "--sign-in")
    password = re.search(r"with the password (\S+)", console.text)
    assert password is not None
    open_page(page, console, "/c/default/topics")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")
    page.get_by_label("Password").fill(password.group(1))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_SECONDS_MAX)

    page.get_by_role("link", name="People").click()
    page.get_by_role("button", name="Add somebody").click()
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
    expect(page.get_by_role("link", name=topic)).to_be_visible(timeout=CHANGE_SECONDS_MAX)
    expect(page.get_by_role("button", name="Create topic")).to_have_count(0)
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    refused = page.request.delete(f"{console.address}/api/clusters/default/topics/{topic}")
    assert refused.status == 403


def test_a_broker_that_goes_is_told_and_found_again(
    page: Page, make_console: MakeConsole, broker_factory: object
) -> None:
    assert callable(broker_factory)
    broker = broker_factory()
    console = make_console("--bootstrap-server", broker.bootstrap)
    open_page(page, console, "/c/default")
    expect(page.get_by_text("All partitions have leaders")).to_be_visible(timeout=CHANGE_SECONDS_MAX)
    broker.kill9()
    expect(page.get_by_role("alert").first).to_contain_text("connection refused", timeout=CHANGE_SECONDS_MAX)
    expect(page.get_by_text("All partitions have leaders")).to_be_visible()
    broker.start()
    expect(page.get_by_role("alert")).to_have_count(0, timeout=CHANGE_SECONDS_MAX)


def test_a_request_that_does_not_come_is_not_waited_for(console: ConsoleProcess) -> None:
    host, port = console.address.removeprefix("http://").split(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port))) as half, socket.create_connection((host, int(port))) as silent:
        half.sendall(b"POST /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{")
        for each in (half, silent):
            each.settimeout(60)
            assert b"408" in each.recv(4096)
    assert 9 <= time.monotonic() - began < 40


def test_the_api_is_described_and_says_what_kafkas_tools_say(
    console: ConsoleProcess, client: Client, topic: str
) -> None:
    with urllib.request.urlopen(f"{console.address}/api/openapi.json") as answer:
        described = json.load(answer)
    assert "/api/clusters/{cluster}/topics/{topic}" in described["paths"]

    def read() -> list[int | None]:
        try:
            with urllib.request.urlopen(f"{console.address}/api/clusters/default/topics/{topic}") as answer:
                return [item["end"] for item in json.load(answer)["partitions"]]
        except urllib.error.HTTPError:
            return []

    eventually(read, ends(client, topic))
