"""Topics, groups and brokers in the console: each test changes something in the page and checks it with a client from
outside, or changes something outside and waits for the page to show it.
"""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.browser.conftest import ConsoleProcess
from tests.browser.outside import CHANGE_MS_MAX, ends, new_name, open_page, produce

from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs
from ottla.client.groups import commit_offsets, committed_offsets, list_groups
from ottla.client.offsets import EARLIEST


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
    page.get_by_label("Partitions in total").fill("3")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Partitions").click()
    expect(page.locator('tr[data-key="2"]')).to_be_visible()
    assert len(Admin(client).topic(name).partitions) == 3

    produce(client, name, 5)
    expect(page.locator('tr[data-key="0"] td').nth(5)).to_have_text("5", timeout=CHANGE_MS_MAX)
    page.get_by_role("button", name="Empty").click()
    page.get_by_label(re.compile("^Type")).fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Empty").click()
    expect(page.locator('tr[data-key="0"] td').nth(4)).to_have_text("5", timeout=CHANGE_MS_MAX)
    assert ends(client, name, EARLIEST) == [5, 0, 0]

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    page.get_by_label(re.compile("^Type")).fill(name)
    dialog.get_by_role("button", name="Delete").click()
    page.wait_for_url("**/c/default/topics")
    assert name not in [topic.name for topic in Admin(client).topics()]
    expect(page.get_by_role("link", name=name)).to_have_count(0)


def test_a_refusal_of_the_cluster_is_shown_and_the_dialog_stays(
    page: Page, console: ConsoleProcess, topic: str, client: Client
) -> None:
    open_page(page, console, "/c/default/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill(topic)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(f"Topic '{topic}' already exists.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_second_of_two_operators_sees_what_has_changed(
    page: Page, console: ConsoleProcess, topic: str, client: Client
) -> None:
    open_page(page, console, f"/c/default/topics/{topic}/settings?q=retention.ms")
    page.locator('tr[data-key="retention.ms"]').get_by_role("button", name="Change").click()
    alter_configs(client, Resource.TOPIC, topic, {"retention.ms": "111111"}, [])
    page.get_by_label("Value").fill("222222")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("retention.ms was changed to 111111")


def test_several_topics_are_deleted_at_once(page: Page, console: ConsoleProcess, client: Client) -> None:
    prefix = new_name("many")
    for number in range(3):
        Admin(client).create_topic(f"{prefix}-{number}", partitions=1, replication_factor=1)
    open_page(page, console, f"/c/default/topics?q={prefix}")
    for number in range(2):
        page.get_by_role("checkbox", name=f"Select {prefix}-{number}").check(timeout=CHANGE_MS_MAX)
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
    expect(page.get_by_role("link", name=other)).to_be_visible(timeout=CHANGE_MS_MAX)
    produce(client, other, 3)
    expect(page.locator(f'tr[data-key="{other}"] td').nth(5)).to_have_text("3", timeout=CHANGE_MS_MAX)


def test_a_group_is_shown_reset_by_a_plan_and_deleted(
    page: Page, console: ConsoleProcess, client: Client, topic: str
) -> None:
    group = new_name("group")
    place = TopicPartition(topic, 0)
    commit_offsets(client, group, {place: 4})
    open_page(page, console, "/c/default/groups")
    expect(page.locator(f'tr[data-key="{group}"] td').nth(6)).to_have_text("6", timeout=CHANGE_MS_MAX)
    page.get_by_role("link", name=group).click()
    expect(page.locator(f'tr[data-key="{topic}-0"]')).to_contain_text("6")

    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("Target position").select_option("shift-by")
    page.get_by_label("Records; negative: back").fill("-1")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_label(f"Offset of {topic}-0")).to_have_value("3")
    assert committed_offsets(client, group)[place].offset == 4, "a plan changes nothing"
    page.get_by_label(f"Offset of {topic}-0").fill("99")
    page.get_by_label(f"Offset of {topic}-0").press("Tab")
    expect(page.get_by_text("99 is outside the log")).to_be_visible()
    expect(page.get_by_label(f"Offset of {topic}-0")).to_have_value("10")
    page.get_by_role("button", name="Reset now").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert committed_offsets(client, group)[place].offset == 10
    expect(page.locator(f'tr[data-key="{topic}-0"] td').nth(5)).to_have_text("0", timeout=CHANGE_MS_MAX)

    page.get_by_role("button", name="Delete").click()
    page.get_by_label(re.compile("^Type")).fill(group)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/c/default/groups")
    assert group not in [each.group_id for each in list_groups(client)]


def test_brokers_folders_settings_and_the_overview_say_what_the_cluster_says(
    page: Page, console: ConsoleProcess, client: Client, topic: str
) -> None:
    open_page(page, console, "/c/default")
    expect(page.get_by_text("All partitions have a leader and all replicas in sync.")).to_be_visible()
    page.get_by_role("button", name="Diagnose the cluster").click()
    findings = page.locator(".findings li").or_(page.get_by_text("No problems found"))
    expect(findings.first).to_be_visible(timeout=CHANGE_MS_MAX)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Brokers").click()
    page.locator("tbody tr[data-key]").first.press("Enter")
    expect(page.get_by_role("heading", name=re.compile(r"Broker \d+"))).to_be_visible()
    page.get_by_role("link", name="Log folders").click()
    expect(page.locator("tbody tr[data-key]").first).to_contain_text("healthy")
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Find settings").fill("log.dirs")
    expect(page.locator('tr[data-key="log.dirs"]')).to_contain_text("server.properties")
    open_page(page, console, f"/c/default/topics/{topic}/brokers")
    summed = page.locator(".figure", has_text="Sum of partition offsets")
    expect(summed).to_contain_text(str(sum(ends(client, topic))), timeout=CHANGE_MS_MAX)
    expect(page.locator(".figure", has_text="Brokers Spread %")).to_contain_text("100")


def test_a_shift_by_records_was_offered_for_partitions_that_the_group_does_not_have(
    page: Page, console: ConsoleProcess, client: Client, topic: str
) -> None:
    group = new_name("group")
    commit_offsets(client, group, {TopicPartition(topic, 0): 7})
    open_page(page, console, f"/c/default/groups?q={group}")
    page.get_by_role("link", name=group).click()
    page.get_by_role("button", name="Reset offsets").click()
    expect(page.get_by_label("Topics")).to_have_value(topic)
    page.get_by_label("Target position").select_option("shift-by")
    expect(page.get_by_label("Topics")).to_have_value(f"{topic}:0")
    page.get_by_label("Records; negative: back").fill("-2")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_label(f"Offset of {topic}-0")).to_have_value("5")
    expect(page.get_by_role("dialog").locator("tbody tr[data-key]")).to_have_count(1)
    page.get_by_role("button", name="Back").click()
    page.get_by_label("Topics").fill(f"{topic}:0,1")
    page.get_by_label("Target position").select_option("to-earliest")
    expect(page.get_by_label("Topics")).to_have_value(f"{topic}:0,1")  # what was typed stays
