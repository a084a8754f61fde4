"""Rights, users, quotas, settings of all brokers: changed in the page; clients and tools outside see what became of it.

One broker with an authorizer: the console logs in as admin, who may do everything, and so do tools without a login.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import ConsoleProcess, MakeConsole
from tests.browser.outside import CHANGE_MS_MAX, eventually, new_name, open_page
from tests.conftest import FOREIGN_BOOTSTRAP, Broker, free_port, ottla_command

from ottla.client.acls import describe_acls
from ottla.client.admin import Admin
from ottla.client.client import Client, open_client
from ottla.client.configs import Resource, describe_configs
from ottla.client.quotas import Alteration, ScramUpsertion, alter_quotas, alter_scram, describe_quotas, describe_scram
from ottla.client.tokens import create_token, describe_tokens
from ottla.security.acls import AclFilter

pytestmark = pytest.mark.skipif(bool(FOREIGN_BOOTSTRAP), reason="its listeners are not ours to set")
PASSWORD = "admin's secret"
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{}";'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A broker without an authorizer, and one with logins."""
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "delegation.token.secret.key": "a secret of all brokers",
    }
    broker = Broker(tmp_path_factory.mktemp("secured"), settings)
    broker.settings["listeners"] += f",CLIENTS://{address}"
    try:
        broker.start()
        with Client(broker.bootstrap) as client:
            alter_scram(client, "admin", [ScramUpsertion("SCRAM-SHA-512", 4096, PASSWORD.encode())], ())
        yield broker.bootstrap, address
        broker.stop()
    finally:
        broker.discard()


@pytest.fixture(scope="module")
def properties() -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": LOGIN.format(PASSWORD),
    }


@pytest.fixture(scope="module")
def console(
    make_console: MakeConsole,
    secured: tuple[str, str],
    properties: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> ConsoleProcess:
    file = tmp_path_factory.mktemp("login") / "admin.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return make_console("--bootstrap-server", secured[1], "--command-config", str(file))


@pytest.fixture
def client(secured: tuple[str, str]) -> Iterator[Client]:
    with Client(secured[0]) as client:
        yield client


def ottla(secured: tuple[str, str], *words: str) -> str:
    command = [*ottla_command(), *words, "--bootstrap-server", secured[0]]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def write_as(user: str, password: str, address: str, topic: str) -> KafkaError | None:
    """The result of producing one record with a login."""
    outcome: list[KafkaError | None] = []
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "message.timeout.ms": 8000,
        "topic.metadata.refresh.interval.ms": 500,
    }
    producer = Producer(settings, logger=None)
    producer.produce(topic, b"hello", on_delivery=lambda problem, _: outcome.append(problem))
    assert producer.flush(20) == 0
    return outcome[0]


def last_change(page: Page, console: ConsoleProcess) -> dict[str, str]:
    entry: dict[str, str] = page.request.get(f"{console.address}/api/audit").json()["entries"][0]
    return entry


def test_a_user_gets_a_password_and_a_rule_and_writes_until_both_are_taken_away(
    page: Page, console: ConsoleProcess, secured: tuple[str, str], client: Client
) -> None:
    topic, user = new_name("orders"), new_name("alice")
    Admin(client).create_topic(topic, partitions=1, replication_factor=1)
    open_page(page, console, "/c/default/users")
    page.get_by_role("button", name="Add a user").click()
    page.get_by_role("dialog").locator("input[name=user]").fill(user)
    page.get_by_label("Password").fill("alice's secret")
    page.get_by_role("button", name="Save").click()
    row = page.locator("tbody tr[data-key]").filter(has_text=user)
    expect(row).to_contain_text("SCRAM-SHA-512")
    assert describe_scram(client, [user]) == {user: [("SCRAM-SHA-512", 8192)]}
    entry = last_change(page, console)
    assert (entry["target"], entry["before"], entry["after"]) == (f"user {user}", None, '{"SCRAM-SHA-512":8192}')
    problem = write_as(user, "alice's secret", secured[1], topic)
    assert problem is not None, "alice may log in, but has no rights"

    open_page(page, console, "/c/default/acls")
    page.get_by_role("button", name="Add rules").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Principal").fill(f"User:{user}")
    dialog.get_by_label("Name", exact=False).first.fill(topic)
    dialog.get_by_role("button", name="Producer permissions").click()
    dialog.get_by_role("button", name="Preview changes").click()
    expect(dialog.locator("#effects")).to_contain_text(f"User:{user} may then Write: Topic {topic}")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("tbody tr[data-key]").filter(has_text=topic)).to_have_count(3)
    assert write_as(user, "alice's secret", secured[1], topic) is None
    told = json.loads(ottla(secured, "acls", "list", "--topic", topic, "--json"))
    assert {rule["operation"] for rule in told} == {"write", "describe", "create"}

    page.get_by_role("button", name="Explain").click()
    dialog.get_by_label("Principal").fill(f"User:{user}")
    dialog.locator("select[name=operation]").select_option("WRITE")
    dialog.locator("input[name=name]").fill(topic)
    dialog.get_by_role("button", name="Check").click()
    expect(dialog.locator("#answer")).to_contain_text("yes")
    expect(dialog.locator("#answer pre")).to_contain_text(
        f"ottla acls remove --allow User:{user} --operation write --topic {topic}"
    )
    dialog.get_by_role("button", name="Cancel").click()

    page.get_by_role("combobox", name="All operations").select_option("WRITE")
    assert "operation=WRITE" in page.url, "the view is an address"
    page.locator("tbody tr[data-key]").filter(has_text=topic).get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete").click()
    expect(dialog.locator("#effects")).to_contain_text(f"User:{user} may no longer Write: Topic {topic}")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Rules deleted: 1")).to_be_visible()
    assert write_as(user, "alice's secret", secured[1], topic) is not None
    entry = last_change(page, console)
    assert "WRITE" in entry["before"]
    assert (entry["action"], entry["outcome"]) == ("POST /api/clusters/{cluster}/acl-deletions", "done")

    open_page(page, console, "/c/default/users")
    row.get_by_role("button", name="Delete").click()
    page.get_by_label(f"Type {user} to confirm").fill(user)
    dialog.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    assert describe_scram(client, [user]) == {}


def test_rules_of_others_appear_and_one_that_is_gone_is_not_deleted_twice(
    page: Page, console: ConsoleProcess, secured: tuple[str, str], client: Client
) -> None:
    name = new_name("theirs")
    open_page(page, console, f"/c/default/acls?name={name}-x")
    ottla(secured, "acls", "add", "--deny", "User:*", "--operation", "read", "--topic", name, "--prefixed")
    row = page.locator("tbody tr[data-key]").filter(has_text=name)
    expect(row).to_contain_text("denied", timeout=CHANGE_MS_MAX)
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#effects")).to_be_visible()
    ottla(secured, "acls", "remove", "--deny", "User:*", "--operation", "read", "--topic", name, "--prefixed")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("1 of these rules no longer exist")
    dialog.get_by_role("button", name="Cancel").click()
    expect(row).to_have_count(0, timeout=CHANGE_MS_MAX)


def test_limits_are_set_and_removed_and_say_which_of_them_count(
    page: Page, console: ConsoleProcess, secured: tuple[str, str], client: Client
) -> None:
    user = new_name("bob")
    alter_quotas(client, [Alteration({"user": None}, {"producer_byte_rate": 500.0})])
    open_page(page, console, "/c/default/quotas")
    page.get_by_role("button", name="Set a limit").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("select[name=user-choice]").select_option("named")
    dialog.locator("input[name=user]").fill(user)
    dialog.locator("select[name=client-id-choice]").select_option("default")
    expect(dialog.locator("select[name=ip-choice]")).to_be_disabled()
    dialog.get_by_label("At most").fill("2048")
    dialog.get_by_role("button", name="Save").click()
    row = page.locator("tbody tr[data-key]").filter(has_text=user)
    expect(row).to_contain_text("2 KiB a second")
    entity = {"user": user, "client-id": None}
    wanted = [("user", user), ("client-id", "")]
    assert [tuple(quota) for quota in describe_quotas(client, wanted)] == [(entity, {"producer_byte_rate": 2048.0})]
    applied = page.locator("#applied")
    applied.get_by_label("User").fill(user)
    applied.get_by_label("Client id").fill("app")
    expect(applied.locator("tbody tr[data-key]").filter(has_text="2 KiB")).to_contain_text("applies")
    expect(applied.locator("tbody tr[data-key]").filter(has_text="500 B")).to_contain_text(
        "overridden by a more specific limit"
    )

    alter_quotas(client, [Alteration(entity, {"producer_byte_rate": 4096.0})])
    row.last.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(dialog.get_by_role("alert")).to_contain_text("producer_byte_rate was changed to 4096")
    dialog.get_by_role("button", name="Cancel").click()
    mine = page.locator("main > .page > .table-box tbody tr[data-key]").filter(has_text=user)
    expect(mine).to_contain_text("4 KiB a second", timeout=CHANGE_MS_MAX)
    mine.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(mine).to_have_count(0)
    assert describe_quotas(client, wanted) == []
    assert json.loads(ottla(secured, "quotas", "list", "--json")) == [
        {"user-defaults": True, "producer_byte_rate": 500.0}
    ]
    entry = last_change(page, console)
    assert (entry["before"], entry["after"]) == ('{"producer_byte_rate":4096.0}', '{"producer_byte_rate":null}')
    alter_quotas(client, [Alteration({"user": None}, {}, ["producer_byte_rate"])])


def test_a_delegation_token_is_shown_without_its_secret_and_expired(
    page: Page, console: ConsoleProcess, secured: tuple[str, str], properties: dict[str, str]
) -> None:
    with open_client(secured[1], properties, "test") as admin:
        known = create_token(admin)
        open_page(page, console, "/c/default/users/tokens")
        row = page.locator(f'tbody tr[data-key="{known.token.token_id}"]')
        expect(row).to_contain_text("User:admin", timeout=CHANGE_MS_MAX)
        assert (
            known.password not in page.request.get(f"{console.address}/api/clusters/default/delegation-tokens").text()
        )
        row.get_by_role("button", name="Expire").click()
        page.get_by_role("dialog").get_by_role("button", name="Expire").click()
        expect(row).to_have_count(0)
        assert known.token.token_id not in {each.token.token_id for each in describe_tokens(admin)}


def test_a_setting_of_all_brokers_is_changed_and_taken_back(
    page: Page, console: ConsoleProcess, client: Client
) -> None:
    key = "log.retention.ms"

    def in_force() -> str | None:
        found = describe_configs(client, Resource.BROKER, ["1"])["1"]
        return next(config.value for config in found if config.name == key)

    before = in_force()
    open_page(page, console, "/c/default/brokers")
    page.get_by_role("link", name="Settings of all brokers").click()
    page.get_by_label("Find settings").fill(key)
    row = page.locator(f'tbody tr[data-key="{key}"]')
    row.get_by_role("button", name="Change").click()
    page.get_by_label("Value for all brokers").fill("3600000")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("3600000")
    wide = describe_configs(client, Resource.BROKER, [""])[""]
    assert [(config.name, config.value) for config in wide if config.name == key] == [(key, "3600000")]
    eventually(in_force, "3600000")
    entry = last_change(page, console)
    assert (entry["target"], entry["before"], entry["after"]) == (
        "all brokers", '{"log.retention.ms":null}', '{"log.retention.ms":"3600000"}',
    )  # fmt: skip
    row.get_by_role("button", name="Change").click()
    page.get_by_role("button", name="Restore the default").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    eventually(in_force, before)


def test_a_cluster_without_an_authorizer_says_so_in_chinese_on_a_telephone(
    browser: Browser, make_console: MakeConsole, bootstrap: str
) -> None:
    console = make_console("--bootstrap-server", bootstrap)
    context = browser.new_context(viewport={"width": 390, "height": 780}, locale="zh-CN", color_scheme="dark")
    page = context.new_page()
    open_page(page, console, "/c/default/acls")
    expect(page.get_by_role("status").filter(has_text="此集群没有授权器")).to_be_visible()
    add = page.get_by_role("button", name="添加规则")
    expect(add).to_be_disabled()
    assert "没有授权器" in (add.get_attribute("title") or "")
    open_page(page, console, "/c/default/users/tokens")
    expect(page.get_by_role("status").filter(has_text="委托令牌")).to_be_visible()
    for address in ("acls", "users", "quotas", "broker-settings"):
        open_page(page, console, f"/c/default/{address}")
        expect(page.locator(".page h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
    open_page(page, console, "/c/default/topics/none")
    expect(page.locator(".empty")).to_be_visible()
    refused = page.evaluate(
        """async () => { const { get } = await import("/static/core/api.js");
        return get("/api/clusters/default/topics/none").catch((problem) => problem.message); }"""
    )
    assert refused == "没有主题 none"
    context.close()


def test_the_keyboard_alone_adds_and_deletes_a_rule(page: Page, console: ConsoleProcess, client: Client) -> None:
    topic = new_name("keys")
    open_page(page, console, "/c/default/acls")
    expect(page.get_by_role("button", name="Add rules")).to_be_enabled()

    def tab_to(words: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if words in page.evaluate("document.activeElement.dataset.key ?? document.activeElement.textContent"):
                return
        raise AssertionError(f"no way to {words}")

    def rules() -> int:
        return len(describe_acls(client, AclFilter(name=topic)))

    tab_to("Add rules")
    page.keyboard.press("Enter")
    page.keyboard.type("User:kim")
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.type(topic)
    page.keyboard.press("Enter")
    eventually(rules, 1)
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type(topic)
    expect(page.locator("tbody tr[data-key]")).to_have_count(1)
    tab_to(topic)
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Delete (1)")).to_be_enabled()
    page.get_by_role("button", name="Delete (1)").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#effects")).to_be_visible()
    tab_to("Delete")
    page.keyboard.press("Enter")
    eventually(rules, 0)
