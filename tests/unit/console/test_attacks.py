"""Attacks: each of these once worked, or ended in an internal error."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.console.test_api import (
    PEOPLE,
    SNAPSHOT,
    TOPICS,
    ConsoleFixture,
    FakeCluster,
    FixedClock,
    run,
    signed_in,
)
from tests.unit.console.test_messages import LOGS, ORDERS, _places, lines

from ottla.base import passwords
from ottla.base.errors import Error
from ottla.base.passwords import FREE_FAILURES, hash_password
from ottla.base.properties import read_properties
from ottla.client.errors import ClientError
from ottla.console.api import clusters, people
from ottla.console.api.dispatch import AUDITED_REFUSALS_MAX, CACHED_ANSWERS_MAX
from ottla.console.api.errors import from_client_error
from ottla.console.api.message_search import IncompleteFileError
from ottla.console.auth.rights import Grant
from ottla.console.auth.sessions import LIFETIME_MS
from ottla.console.clusters.cluster import ClusterAddress, SecretMovedError, open_monitor, properties_text
from ottla.console.clusters.metrics import ClusterMetrics
from ottla.console.clusters.snapshot import Snapshot
from ottla.console.console import TESTS_MAX
from ottla.console.store import Person, Tables
from ottla.security.sasl.exchange import LoginError

CLUSTER = "/api/clusters/default"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ConsoleFixture]:
    yield from _places(tmp_path)


def test_half_a_character_in_a_message_does_not_hide_the_others(place: ConsoleFixture) -> None:
    LOGS.logs[0].append([b'{"\\ud800": ["\\udfff x"]}'])

    async def ask() -> None:
        status, page, _ = await place.ask("GET", f"{ORDERS}/messages")
        assert status == 200
        assert len(page["messages"]) == 6
        _, found, _ = await place.ask("GET", f"{ORDERS}/search?q=offset%20%3D%203")
        assert next(line["hit"] for line in lines(found) if "hit" in line)["value"]["json"] == {"\ufffd": ["\ufffd x"]}

    run(place, ask)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", f"{CLUSTER}/history?hours={'1' * 5000}", None, {}, 400, "BAD_REQUEST"),
        ("GET", f"/api/audit?before={'9' * 5000}", None, {}, 400, "BAD_REQUEST"),
        ("GET", f"{CLUSTER}/brokers/{'1' * 5000}", None, {}, 404, "NOT_FOUND"),
        ("POST", TOPICS, {"name": "x"}, {"origin": "http://["}, 403, "FOREIGN_ORIGIN"),
        ("PUT", "/api/people/x", {"grants": [], "password": "x" * 2000}, {}, 400, "BAD_REQUEST"),
        ("POST", "/api/clusters", {"name": "x", "bootstrap": "file:///etc/passwd"}, {}, 400, "BAD_REQUEST"),
        ("POST", "/api/clusters", {"name": "x", "bootstrap": ""}, {}, 400, "BAD_REQUEST"),
        ("POST", "/api/cluster-test", {"name": "x", "bootstrap": "http://169.254.169.254/"}, {}, 400, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_strange_requests_have_an_answer(
    place: ConsoleFixture, method: str, path: str, body: object, headers: dict[str, str], status: int, code: str
) -> None:
    async def ask() -> None:
        found = await place.ask(method, path, body, **headers)
        assert (found[0], found[1]["error"]) == (status, code)

    run(place, ask)


def test_an_internal_error_has_the_form_of_all_errors(place: ConsoleFixture, caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        del place.cluster.snapshot
        status, answer, headers = await place.ask("GET", TOPICS)
        assert (status, answer["error"]) == (500, "INTERNAL")
        assert "snapshot" not in answer["message"]
        assert "content-security-policy" in headers
        assert "snapshot" in caplog.text

    run(place, ask)


def test_what_cannot_be_sent_is_the_askers_fault() -> None:
    assert from_client_error(ClientError("this cannot be sent: too long", Error.INVALID_REQUEST)).status == 400
    assert from_client_error(ClientError("cannot reach a:9092")).status == 503


def test_a_topic_that_is_not_there_cannot_be_emptied(place: ConsoleFixture) -> None:
    class Asked(FakeCluster):
        async def change(self, change: Callable[..., Any], *arguments: object, **_: object) -> Any:
            return change(None)

    place.console.clusters["default"] = Asked()  # type: ignore[assignment]

    async def ask() -> None:
        _, answer, _ = await place.ask("POST", f"{CLUSTER}/topic-emptyings", {"names": ["nothing"]})
        assert answer["results"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"

    run(place, ask)


async def many(place: ConsoleFixture, count: int, password: str) -> list[int]:
    basic = "Basic " + base64.b64encode(f"vera:{password}".encode()).decode()
    asked = (place.ask("GET", "/api/clusters", authorization=basic) for _ in range(count))
    return [status for status, _, _ in await asyncio.gather(*asked)]


def test_passwords_are_not_guessed_at_the_same_time(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        assert await many(place, 8, "vera's password") == [200] * 8, "a program may ask as often as it likes"
        found = await many(place, 20, "a guess")
        assert (found.count(401), found.count(429)) == (FREE_FAILURES, 20 - FREE_FAILURES)
        long = await place.ask("POST", "/api/session", {"name": "x" * 500_000, "password": "y"})
        assert long[0] in (401, 429)
        assert all(len(key) < 1_000 for key in place.console.authenticator.tries.failures)

    run(place, ask)


@pytest.mark.parametrize("end", ["token", "person", "rights", "time"])
def test_streams_end_with_what_they_began_under(tmp_path: Path, end: str) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        anna, vera = await signed_in(place, "anna"), await signed_in(place, "vera")
        _, made, _ = await place.ask("POST", "/api/tokens", {"label": "a script"}, cookie=vera)
        bearer = f"Bearer {made['token']}"
        place.console.ages = dict  # type: ignore[method-assign]
        shown = {"cookie": vera} if end == "time" else {"authorization": bearer}
        stream = asyncio.create_task(place.ask("GET", "/api/events", **shown))
        await asyncio.sleep(30)
        assert not stream.done()
        if end == "token":
            await place.ask("DELETE", f"/api/tokens/{made['token_id']}", cookie=vera)
        elif end == "person":
            await place.ask("DELETE", "/api/people/vera", cookie=anna)
        elif end == "rights":
            await place.ask("PUT", "/api/people/vera", {"grants": []}, cookie=anna)
        else:
            place.console.clock.now_ms = lambda: 1_700_000_000_000 + LIFETIME_MS  # type: ignore[method-assign]
        await asyncio.wait_for(stream, 30)

    run(place, ask)


def test_a_download_cut_by_the_end_of_the_session_fails(tmp_path: Path) -> None:
    place = next(_places(tmp_path, needs_sign_in=True, people=PEOPLE))

    async def ask() -> None:
        cookie = await signed_in(place, "anna")
        session = next(iter(place.console.authenticator.sessions.by_secret.values()))
        session.has_ended = lambda _: True  # type: ignore[method-assign]
        with pytest.raises(IncompleteFileError):
            await place.ask("GET", f"{ORDERS}/message-file", cookie=cookie)

    run(place, ask)


def limited(*grants: Grant) -> tuple[Person, ...]:
    return (*PEOPLE, Person("lena", hash_password("lena's password"), list(grants)))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{CLUSTER}/masks", {"rules": []}),
        ("GET", f"{CLUSTER}/masks", None),
        ("POST", f"{CLUSTER}/examinations", None),
        ("POST", f"{CLUSTER}/groups/orders-g/reset-plans", {"scenario": "to-latest", "topics": ["payments"]}),
        ("POST", f"{CLUSTER}/groups/orders-g/reset-plans", {"scenario": "to-latest", "topics": ["payments:0"]}),
        (
            "POST",
            f"{CLUSTER}/groups/orders-g/reset-plans",
            {"scenario": "each", "offsets": [{"topic": "payments", "partition": 0, "offset": 0}]},
        ),
        (
            "POST",
            f"{CLUSTER}/groups/orders-g/resets",
            {"rows": [{"topic": "payments", "partition": 0, "before": None, "after": 1}]},
        ),
    ],
)
def test_a_caller_of_some_names_neither_sees_nor_changes_others(
    tmp_path: Path, method: str, path: str, body: object
) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=limited(Grant("admin", names="orders*")))

    async def ask() -> None:
        cookie = await signed_in(place, "lena")
        assert (await place.ask(method, path, body, cookie=cookie))[0] == 403

    run(place, ask)


def test_hidden_fields_are_shown_as_they_are_now(place: ConsoleFixture) -> None:
    async def ask() -> None:
        for rules in (["orders:key"], []):
            await place.ask("PUT", f"{CLUSTER}/masks", {"rules": rules})
            assert (await place.ask("GET", f"{CLUSTER}/masks"))[1] == {"rules": rules}

    run(place, ask)


def test_the_right_to_read_messages_is_reported_for_each_cluster(tmp_path: Path) -> None:
    grants = Grant("viewer"), Grant("viewer", cluster="other", may_read_messages=True)
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=limited(*grants))
    place.cluster.snapshot = Snapshot()

    async def ask() -> None:
        _, answer, _ = await place.ask("GET", "/api/clusters", cookie=await signed_in(place, "lena"))
        assert [row["may_read_messages"] for row in answer["clusters"]] == [False]

    run(place, ask)


def test_answers_that_are_kept_for_others_are_bounded(place: ConsoleFixture) -> None:
    async def ask() -> None:
        for number in range(CACHED_ANSWERS_MAX + 50):
            assert (await place.ask("GET", f"{TOPICS}?x={number}"))[0] == 200
        assert len(place.app.dispatcher.cached_answers) <= CACHED_ANSWERS_MAX

    run(place, ask)


def test_a_stored_password_goes_nowhere_else(place: ConsoleFixture) -> None:
    secret = 'sasl.jaas.config=x password="p";\nsecurity.protocol=SASL_SSL'

    async def ask() -> None:
        old = ClusterAddress("default", "a:9092", secret)
        masked = old.masked_properties()
        assert old.unmask_properties(masked, "a:9092") == properties_text(read_properties(secret))
        for text, bootstrap in ((masked, "evil:9092"), (f"{masked}\nschema.registry.url=http://evil", "a:9092")):
            with pytest.raises(SecretMovedError, match=r"sasl\.jaas\.config"):
                old.unmask_properties(text, bootstrap)
        place.cluster.address = old
        body = {"name": "default", "bootstrap": "evil:9092", "properties": masked}
        status, answer, _ = await place.ask("POST", "/api/cluster-test", body)
        assert (status, answer["error"]) == (400, "BAD_REQUEST")

    run(place, ask)


def test_pages_of_others_start_nothing_and_private_answers_are_not_kept(place: ConsoleFixture) -> None:
    async def ask() -> None:
        for site in ("cross-site", "same-site"):
            assert (await place.ask("GET", f"{ORDERS}/search?q=x", sec_fetch_site=site))[0] == 403
        assert (await place.ask("GET", "/c/default/topics", sec_fetch_site="cross-site"))[0] == 200, "links lead here"
        for path in (f"{ORDERS}/messages", "/api/clusters", "/api/session", "/api/audit"):
            assert (await place.ask("GET", path))[2]["cache-control"] == "no-store"
        assert (await place.ask("GET", TOPICS))[2]["cache-control"] == "private, no-cache"

    run(place, ask)


def test_refused_attempts_stand_in_the_trail_and_cannot_wash_it_out(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        anna, vera = await signed_in(place, "anna"), await signed_in(place, "vera")
        for number in range(AUDITED_REFUSALS_MAX + 5):
            assert (await place.ask("DELETE", f"{TOPICS}/t{number}", cookie=vera))[0] == 403
        _, answer, _ = await place.ask("GET", "/api/audit", cookie=anna)
        assert len(answer["entries"]) == AUDITED_REFUSALS_MAX
        first = answer["entries"][-1]
        assert (first["person"], first["target"]) == ("vera", f"{TOPICS}/t0")
        assert first["outcome"].startswith("FORBIDDEN")

    run(place, ask)


@pytest.mark.parametrize(
    "line",
    [
        "sasl.oauthbearer.token.endpoint.url=file:///etc/shadow",
        "sasl.oauthbearer.token.endpoint.url=FILE:/etc/shadow",
        "sasl.oauthbearer.token.endpoint.url=\\u0001file:///etc/shadow",
        "sasl.oauthbearer.token.endpoint.url=http://[",
        "sasl.kerberos.kinit.cmd=/tmp/mine",
        "plugin.library.paths=/tmp/mine.so",
        "ssl.engine.location=/tmp/mine.so",
        "sasl.oauthbearer.assertion.file=/etc/shadow",
        "sasl.oauthbearer.metadata.authentication.type=azure_imds",
    ],
)
def test_properties_of_a_page_send_no_file_and_run_no_program(place: ConsoleFixture, line: str) -> None:
    properties = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n{line}"

    async def ask() -> None:
        for method, path in (("POST", "/api/cluster-test"), ("POST", "/api/clusters")):
            body = {"name": "x", "bootstrap": "127.0.0.1:1", "properties": properties}
            status, answer, _ = await place.ask(method, path, body)
            assert (status, answer["error"]) == (400, "BAD_REQUEST")
            assert line.partition("=")[0] in answer["message"]
        ClusterAddress("x", "127.0.0.1:1", properties, is_stored=False).make_client(1).close()

    run(place, ask)


OAUTH = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.client.credentials.client.id=me
sasl.oauthbearer.client.credentials.client.secret=hidden
sasl.oauthbearer.token.endpoint.url=http://localhost:{}/latest/meta-data"""


def test_a_token_endpoint_from_a_page_must_be_public() -> None:
    """An admin of clusters could scan the network of the console."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        typed = ClusterAddress("x", "127.0.0.1:1", OAUTH.format(listener.getsockname()[1]))
        with typed.make_client(1) as client:
            assert client.login is not None
            with pytest.raises(LoginError, match="an internal address"):
                client.login.make("broker").first()
        with pytest.raises(ClientError, match="an internal address"):
            open_monitor(typed, FixedClock())
        with pytest.raises(BlockingIOError):
            listener.accept()
    for trusted in (typed._replace(is_stored=False), typed._replace(allows_private=True)):
        with trusted.make_client(1) as client:
            assert client.login is not None
            with pytest.raises(LoginError, match="refused"):
                client.login.make("broker").first()


def test_clusters_get_the_network_permissions_of_the_console(place: ConsoleFixture) -> None:
    typed = ClusterAddress("x", "127.0.0.1:1")
    assert place.console.restricted(typed).is_restricted
    place.console.message_workers.allows_private = True
    assert not place.console.restricted(typed).is_restricted


def test_a_private_key_is_masked() -> None:
    assert "secret words" not in ClusterAddress("x", "a:1", "ssl.key.pem=secret words").masked_properties()


def test_a_right_removed_by_its_owner_is_gone_at_once(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        cookie = await signed_in(place, "anna")
        assert (await place.ask("PUT", "/api/people/anna", {"grants": [{"role": "admin"}]}, cookie=cookie))[0] == 200
        assert (await place.ask("GET", "/api/people", cookie=cookie))[0] == 200, "the session continues"
        assert (await place.ask("GET", f"{ORDERS}/messages", cookie=cookie))[0] == 403

    run(place, ask)


def test_tests_of_clusters_do_not_take_all_threads(place: ConsoleFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "TEST_TIMEOUT_MS", 200)
    monkeypatch.setattr(clusters, "TEST_TIMEOUT_MIN_MS", 20)

    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
            body = {"name": "x", "bootstrap": ",".join([bootstrap] * 50)}
            tests = [place.ask("POST", "/api/cluster-test", body) for _ in range(TESTS_MAX + 3)]
            found = [status for status, _, _ in await asyncio.gather(*tests)]
            assert (found.count(504), found.count(429)) == (TESTS_MAX, 3)
            assert not place.console.tests.taken

    run(place, ask)


def test_streams_do_not_take_all_connections(place: ConsoleFixture) -> None:
    place.console.event_streams.most = 3
    place.console.ages = dict  # type: ignore[method-assign]

    async def ask() -> None:
        streams = [asyncio.create_task(place.ask("GET", "/api/events")) for _ in range(3)]
        await asyncio.sleep(1)
        assert (await place.ask("GET", "/api/events"))[0] == 503
        streams[0].cancel()
        await asyncio.sleep(1)
        assert place.console.event_streams.taken == 2
        place.console.end_streams()
        assert [status for status, _, _ in await asyncio.gather(*streams[1:])] == [200, 200]
        assert place.console.event_streams.taken == 0

    run(place, ask)


def break_audit(place: ConsoleFixture, kind: str) -> None:
    """Make the audit trail refuse new rows, or changes of rows."""
    trigger = f"create trigger broken before {kind} on audit begin select raise(abort, 'disk I/O error'); end"
    place.store.run_sync(lambda tables: tables.connection.execute(trigger))


def test_a_change_that_the_trail_could_not_take_was_carried_out_anyway(place: ConsoleFixture) -> None:
    async def ask() -> None:
        break_audit(place, "insert")
        for method, path, body in (
            ("POST", TOPICS, {"name": "new"}),
            ("DELETE", f"{TOPICS}/orders", None),
            ("PUT", "/api/people/vera", {"grants": [], "password": "long enough"}),
            ("PUT", f"{CLUSTER}/masks", {"rules": ["*:value.card"]}),
        ):
            status, answer, _ = await place.ask(method, path, body)
            assert (status, answer["error"]) == (503, "AUDIT_FAILED"), path
            assert "disk I/O error" in answer["message"]
        assert not place.cluster.changes
        assert place.store.run_sync(Tables.people) == []
        assert place.store.run_sync(Tables.masks, "default") == []
        assert (await place.ask("GET", TOPICS))[0] == 200

    run(place, ask)


def test_a_change_whose_end_the_trail_could_not_take_stands_there_as_begun(place: ConsoleFixture) -> None:
    async def ask() -> None:
        break_audit(place, "update")
        assert (await place.ask("POST", TOPICS, {"name": "new"}))[0] == 200
        del place.cluster.snapshot
        assert (await place.ask("DELETE", f"{TOPICS}/orders"))[0] == 500, "an end that was none"
        _, answer, _ = await place.ask("GET", "/api/audit")
        found = [(entry["target"], entry["outcome"], entry["result"]) for entry in answer["entries"]]
        assert found == [(f"{TOPICS}/orders", "begun", "begun"), (TOPICS, "begun", "begun")], (
            "with what it was about to do"
        )

    run(place, ask)


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        ("done", "done"),
        ("done: 5 of 5 partitions are where they should be", "done"),
        ("begun", "begun"),
        ("cancelled: 3 of 5 partitions are where they should be", "ended"),
        ("5 of 5 partitions are where they should be", "ended"),  # as older versions wrote it
        ("INCOMPLETE: 3 of 5 partitions are where they should be", "failed"),
        ("TOPIC_ALREADY_EXISTS: there is one", "failed"),
    ],
)
def test_a_run_of_assignments_that_had_succeeded_was_shown_in_red(outcome: str, result: str) -> None:
    assert people.result_of(outcome) == result


def test_of_several_topics_each_that_was_refused_stands_in_the_trail_as_such(place: ConsoleFixture) -> None:
    class Refusing(FakeCluster):
        async def change(self, change: Callable[..., Any], *arguments: object, **_: object) -> Any:
            return change(None)

    place.console.clusters["default"] = Refusing()  # type: ignore[assignment]

    async def ask() -> None:
        await place.ask("POST", f"{CLUSTER}/topic-emptyings", {"names": ["nothing"]})
        _, answer, _ = await place.ask("GET", "/api/audit")
        entry = answer["entries"][0]
        assert (entry["result"], entry["outcome"].partition(":")[0]) == ("failed", "UNKNOWN_TOPIC_OR_PARTITION")

    run(place, ask)


def test_wrong_passwords_for_admin_locked_out_the_real_admin(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def sign_in(address: str, name: str, password: str) -> int:
        place.client = address
        return (await place.ask("POST", "/api/session", {"name": name, "password": password}))[0]

    async def ask() -> None:
        for _ in range(FREE_FAILURES):
            assert await sign_in("10.0.0.66", "anna", "guess") == 401
        assert await sign_in("10.0.0.66", "anna", "anna's password") == 429, "from there it waits"
        assert await sign_in("10.0.0.1", "anna", "anna's password") == 204
        assert await sign_in("10.0.0.66", "vera", "vera's password") == 204, "others of that address, too"
        for number in range(passwords.FREE_ADDRESS_FAILURES):
            assert await sign_in("10.0.0.77", f"guess-{number}", "guess") == 401
        assert await sign_in("10.0.0.77", "vera", "vera's password") == 429, "one address tries no list of names"
        assert await sign_in("10.0.0.1", "vera", "vera's password") == 204

    run(place, ask)


NEVER = [
    ("bootstrap", "file://kafka:9092"),
    ("bootstrap", "http://169.254.169.254"),
    ("bootstrap", "kafka-1:9092,169.254.169.254:80"),
    ("bootstrap", "[fe80::1]:9092"),
    ("bootstrap", "2852039166:80"),  # 169.254.169.254, as getaddrinfo takes it
    ("bootstrap", "0xa9fea9fe:80"),
    ("bootstrap", "[::ffff:169.254.169.254]:80"),
    ("bootstrap", "[64:ff9b::a9fe:a9fe]:80"),  # the same behind NAT64
    ("bootstrap", "\uff11\uff16\uff19.254.169.254:80"),  # wide digits, which getaddrinfo takes, too
    ("bootstrap", "169\u3002254\u3002169\u3002254:80"),
    ("bootstrap", "224.0.0.1:9092"),
    ("schema.registry.url", "file:///etc/passwd"),
    ("schema.registry.url", "http://good.example,http://169.254.169.254/latest"),
    ("schema.registry.url", "http://127.0.0.1:8081"),
    ("schema.registry.url", "http://localhost:8081"),
    ("schema.registry.url", "http://0x7f000001:8081"),
    ("schema.registry.url", "gopher://good.example"),
    ("schema.registry.url", "http://good example:8081"),
    ("schema.registry.url", "http://\uff11\uff12\uff17.0.0.1:8081"),
    ("sasl.oauthbearer.token.endpoint.url", "https://169.254.169.254/latest"),
    ("sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
    ("metrics", "http://169.254.169.254/latest"),
    ("metrics", "1=http://[fe80::1%25eth0]:9404"),
    ("webhook", "http://169.254.169.254/latest"),
    ("webhook", "https://10.0.0.1/hook"),
    ("webhook", "file:///etc/passwd"),
    ("mail", "169.254.169.254"),
    ("mail", "file:///etc/passwd"),
]


@pytest.mark.parametrize(("what", "address"), NEVER)
def test_an_address_that_can_never_work_was_kept(place: ConsoleFixture, what: str, address: str) -> None:
    async def ask() -> None:
        good = {"name": "x", "bootstrap": "127.0.0.1:1"}
        cluster = {"bootstrap": good | {"bootstrap": address}}.get(what, good | {"properties": f"{what}={address}"})
        asked = [("POST", "/api/clusters", cluster), ("POST", "/api/cluster-test", cluster)]
        if what == "metrics":
            asked = [("PUT", f"{CLUSTER}/metrics", {"address": address})]
            place.cluster.name = "default"  # type: ignore[attr-defined]
            place.cluster.metrics = ClusterMetrics("default", FixedClock(), lambda: SNAPSHOT, lambda: None)  # type: ignore[attr-defined]
        if what == "webhook":
            asked = [("PUT", "/api/receivers/ops", {"type": "slack", "url": address})]
        if what == "mail":
            mail = {"type": "mail", "server": address, "from": "a@b.example", "to": ["c@d.example"]}
            asked = [("PUT", "/api/receivers/ops", mail)]
        for method, path, body in asked:
            status, answer, _ = await place.ask(method, path, body)
            assert (status, answer["error"]) == (400, "BAD_REQUEST"), path
        assert list(place.console.clusters) == ["default"]
        assert place.store.run_sync(Tables.clusters) == []
        assert place.store.run_sync(Tables.metric_addresses) == {}
        assert not place.console.alerts.receivers

    run(place, ask)


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "schema.registry.url=https://registry.example",
        "schema.registry.url=http://93.184.215.14:8081,http://b.example",
    ],
)
@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "10.0.0.1:1,kafka", "SASL_SSL://kafka:1", "EXTERNAL://[::1]:1"])
def test_an_address_that_may_work_is_kept(place: ConsoleFixture, bootstrap: str, properties: str) -> None:
    async def ask() -> None:
        body = {"name": "x", "bootstrap": bootstrap, "properties": properties}
        assert (await place.ask("POST", "/api/clusters", body))[0] == 200
        assert [address.bootstrap for address in place.store.run_sync(Tables.clusters)] == [bootstrap]
        place.console.remove("x")

    run(place, ask)
