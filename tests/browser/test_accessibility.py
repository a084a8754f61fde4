"""axe-core on every page in both themes and languages; operation by keyboard; a narrow screen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.axe import problems
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, eventually, new_name, produce

from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.groups import commit_offsets
from ottla.console.app import PAGE_PATHS

TOPIC, GROUP = "read-by-all", "all-readers"
NAMES = {"cluster": "default", "topic": TOPIC, "group": GROUP, "broker": "1", "pipeline": "none"}
VIEWS = {
    "/c/{cluster}/topics/{topic}/{view}": ("settings", "groups", "brokers", "messages", "assignments"),
    "/c/{cluster}/groups/{group}/{view}": ("members",),
    "/c/{cluster}/brokers/{broker}/{view}": ("folders", "settings"),
}
OFTEN = (
    "/c/default",
    "/c/default/topics",
    f"/c/default/topics/{TOPIC}",
    f"/c/default/topics/{TOPIC}/messages",
    "/c/default/groups",
    f"/c/default/groups/{GROUP}",
    "/c/default/brokers/1",
    "/clusters",
)
DIALOGS = [
    ("/c/default/topics", "Create topic"),
    ("/clusters", "Add cluster"),
    ("/clusters", "Metrics"),
    ("/people", "Add person"),
    (f"/c/default/groups/{GROUP}", "Reset offsets"),
    (f"/c/default/topics/{TOPIC}", "Delete"),
]
NARROW = 390
WIDTH = "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth)"
# When the page has been as it is for a moment.
SETTLED = """() => new Promise((done) => {
    let timer = setTimeout(done, 200);
    new MutationObserver(() => {
        clearTimeout(timer);
        timer = setTimeout(done, 200);
    }).observe(document.body, { childList: true, subtree: true });
    setTimeout(done, 2000);
})"""


def addresses() -> list[str]:
    """Every address of the console, with one view each."""
    found = []
    for pattern in PAGE_PATHS:
        for view in VIEWS.get(pattern, ("",)):
            words = NAMES | {"view": view}
            found.append(re.sub(r"\{(\w+)\}", lambda name, words=words: words[name[1]], pattern))  # type: ignore[misc]
    return [address for address in found if address not in ("/", "/sign-in")]


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> None:
    """Something on every page."""
    with Client(bootstrap) as client:
        if TOPIC not in [topic.name for topic in Admin(client).topics()]:
            Admin(client).create_topic(TOPIC, partitions=3, replication_factor=1)
        produce(client, TOPIC, 20)
        commit_offsets(client, GROUP, {TopicPartition(TOPIC, 0): 5})


def in_language(browser: Browser, language: str) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    context.add_init_script(f"localStorage.setItem('ottla.language', '{language}')")
    page = context.new_page()
    page.set_default_timeout(CHANGE_MS_MAX)
    return page


def turn(page: Page, theme: str) -> None:
    page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)


def look_at(page: Page, console: ConsoleProcess, pages: list[str]) -> str:
    """The violations of these pages, in both themes, and on a screen of 390 pixels."""
    found = []
    for address in pages:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(console.url(address))
        expect(page.get_by_role("heading").first).to_be_visible()
        page.evaluate(SETTLED)
        turn(page, "light")
        found += [f"{address}: {problem}" for problem in problems(page)]
        turn(page, "dark")
        found += [f"{address}, dark: {problem}" for problem in problems(page, only_colours=True)]
        page.set_viewport_size({"width": NARROW, "height": 780})
        eventually(lambda: page.evaluate(WIDTH) <= NARROW, True)
    return "\n".join(found)


def test_axe_finds_nothing_on_the_pages_of_every_day(browser: Browser, console: ConsoleProcess, filled: None) -> None:
    page = in_language(browser, "zh")
    assert look_at(page, console, [each for each in addresses() if each in OFTEN]) == ""
    page.context.close()


@pytest.mark.faults  # a minute for each language
@pytest.mark.parametrize("language", ["en", "zh"])
def test_axe_finds_nothing_on_any_page(browser: Browser, console: ConsoleProcess, filled: None, language: str) -> None:
    page = in_language(browser, language)
    assert look_at(page, console, addresses()) == ""
    page.context.close()


@pytest.mark.faults
def test_nor_in_dialogs_nor_where_people_sign_in(
    browser: Browser, console: ConsoleProcess, make_console: MakeConsole, filled: None, bootstrap: str
) -> None:
    page = in_language(browser, "en")
    found = []
    for address, button in DIALOGS:
        page.goto(console.url(address))
        page.get_by_role("button", name=button, exact=True).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        for theme in ("light", "dark"):
            turn(page, theme)
            found += [f"{address} {button}, {theme}: {problem}" for problem in problems(page)]
    page.context.clear_cookies()
    for each, label in (
        (make_console("--bootstrap-server", bootstrap, "--sign-in"), "Password"),
        (console, "Token"),
    ):
        page.goto(each.address)
        expect(page.get_by_label(label)).to_be_visible()
        found += [f"sign-in by {label}: {problem}" for problem in problems(page)]
    assert "\n".join(found) == ""
    page.context.close()


def test_from_the_first_page_to_a_message_and_back_by_keyboard(
    page: Page, console: ConsoleProcess, client: Client, filled: None
) -> None:
    """Common tasks without a mouse: skip the bar, create a topic, open one, change a setting."""

    def tab_to(is_there: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate(is_there):
                return
        raise AssertionError(f"no Tab leads to {is_there}")

    name = new_name("typed")
    page.goto(console.url("/c/default/topics"))
    expect(page.get_by_role("link", name=TOPIC)).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    tab_to("document.activeElement.textContent === 'Create topic'")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("document.activeElement.name") == "name", "a dialog begins where one types"
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert name in [topic.name for topic in Admin(client).topics()]
    page.keyboard.press("/")
    page.keyboard.type(TOPIC)
    expect(page.locator("tbody tr[data-key]")).to_have_count(1)
    tab_to(f"document.activeElement.dataset.key === '{TOPIC}'")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=TOPIC)).to_be_visible()
    tab_to("document.activeElement.textContent === 'Settings'")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Find settings")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("retention.ms")
    expect(page.locator("[data-key*='cleanup.policy']")).to_have_count(0)
    tab_to("document.activeElement.dataset.key?.includes('retention.ms')")
    while page.evaluate("document.activeElement.dataset.key") != "retention.ms":
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.dataset.key") == "retention.ms", "back to where one was"
