"""What somebody may try who means no good: each of these once worked, or ended in an error of ours."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.console.test_api import PEOPLE, TOPICS, FixedClock, MadeUpCluster, Place, run, signed_in
from tests.unit.console.test_messages import LOGS, ORDERS, _places, lines

from ottla.base.errors import Error
from ottla.base.passwords import TRIES_FREE, hash_password
from ottla.base.properties import read_properties
from ottla.client.errors import ClientError
from ottla.console.api import clusters, events
from ottla.console.api.clusters import TESTS_MAX
from ottla.console.api.dispatch import ANSWERS_MAX, REFUSALS_MAX
from ottla.console.api.errors import of_cluster
from ottla.console.api.message_search import IncompleteFileError
from ottla.console.clusters.cluster import Address, SecretMovedError, open_monitor, properties_text
from ottla.console.clusters.snapshot import Snapshot
from ottla.console.people.rights import Grant
from ottla.console.people.sessions import LIFE_MS
from ottla.console.store import Person
from ottla.security.sasl.mechanism import LoginError

CLUSTER = "/api/clusters/default"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield from _places(tmp_path)


def test_half_a_character_in_a_message_does_not_hide_the_others(place: Place) -> None:
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
    place: Place, method: str, path: str, body: object, headers: dict[str, str], status: int, code: str
) -> None:
    async def ask() -> None:
        found = await place.ask(method, path, body, **headers)
        assert (found[0], found[1]["error"]) == (status, code)

    run(place, ask)


def test_a_mistake_of_ours_is_told_as_every_error_is(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        del place.cluster.snapshot
        status, answer, headers = await place.ask("GET", TOPICS)
        assert (status, answer["error"]) == (500, "INTERNAL")
        assert "snapshot" not in answer["message"]
        assert "content-security-policy" in headers
        assert "snapshot" in caplog.text

    run(place, ask)


def test_what_cannot_be_sent_is_the_askers_fault() -> None:
    assert of_cluster(ClientError("this cannot be sent: too long", Error.INVALID_REQUEST)).status == 400
    assert of_cluster(ClientError("cannot reach a:9092")).status == 503


def test_a_topic_that_is_not_there_cannot_be_emptied(place: Place) -> None:
    class Asked(MadeUpCluster):
        async def change(self, change: Callable[..., Any], *arguments: object, hurries: object = ()) -> Any:
            return change(None)

    place.console.clusters["default"] = Asked()  # type: ignore[assignment]

    async def ask() -> None:
        _, answer, _ = await place.ask("POST", f"{CLUSTER}/topic-emptyings", {"names": ["nothing"]})
        assert answer["results"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"

    run(place, ask)


async def many(place: Place, count: int, password: str) -> list[int]:
    basic = "Basic " + base64.b64encode(f"vera:{password}".encode()).decode()
    asked = (place.ask("GET", "/api/clusters", authorization=basic) for _ in range(count))
    return [status for status, _, _ in await asyncio.gather(*asked)]


def test_passwords_are_not_guessed_at_the_same_time(tmp_path: Path) -> None:
    place = Place(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        assert await many(place, 8, "vera's password") == [200] * 8, "a program may ask as often as it likes"
        found = await many(place, 20, "a guess")
        assert (found.count(401), found.count(429)) == (TRIES_FREE, 20 - TRIES_FREE)
        long = await place.ask("POST", "/api/session", {"name": "x" * 500_000, "password": "y"})
        assert long[0] in (401, 429)
        assert all(len(key) < 1_000 for key in place.console.signing_in.tries.failures)

    run(place, ask)


@pytest.mark.parametrize("end", ["token", "person", "rights", "time"])
def test_streams_end_with_what_they_began_under(tmp_path: Path, end: str) -> None:
    place = Place(tmp_path, needs_sign_in=True, people=PEOPLE)

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
            place.console.clock.now_ms = lambda: 1_700_000_000_000 + LIFE_MS  # type: ignore[method-assign]
        await asyncio.wait_for(stream, 30)

    run(place, ask)


def test_a_file_that_ends_with_the_session_is_no_whole_file(tmp_path: Path) -> None:
    place = next(_places(tmp_path, needs_sign_in=True, people=PEOPLE))

    async def ask() -> None:
        cookie = await signed_in(place, "anna")
        session = next(iter(place.console.signing_in.sessions.by_secret.values()))
        session.is_over = lambda _: True  # type: ignore[method-assign]
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
def test_whoever_sees_some_names_learns_and_changes_nothing_about_others(
    tmp_path: Path, method: str, path: str, body: object
) -> None:
    place = Place(tmp_path, needs_sign_in=True, people=limited(Grant("admin", names="orders*")))

    async def ask() -> None:
        cookie = await signed_in(place, "lena")
        assert (await place.ask(method, path, body, cookie=cookie))[0] == 403

    run(place, ask)


def test_hidden_fields_are_shown_as_they_are_now(place: Place) -> None:
    async def ask() -> None:
        for rules in (["orders:key"], []):
            await place.ask("PUT", f"{CLUSTER}/masks", {"rules": rules})
            assert (await place.ask("GET", f"{CLUSTER}/masks"))[1] == {"rules": rules}

    run(place, ask)


def test_the_right_to_read_messages_is_told_for_each_cluster(tmp_path: Path) -> None:
    grants = Grant("viewer"), Grant("viewer", cluster="other", may_read_messages=True)
    place = Place(tmp_path, needs_sign_in=True, people=limited(*grants))
    place.cluster.snapshot = Snapshot()

    async def ask() -> None:
        _, answer, _ = await place.ask("GET", "/api/clusters", cookie=await signed_in(place, "lena"))
        assert [row["may_read_messages"] for row in answer["clusters"]] == [False]

    run(place, ask)


def test_answers_that_are_kept_for_others_are_bounded(place: Place) -> None:
    async def ask() -> None:
        for number in range(ANSWERS_MAX + 50):
            assert (await place.ask("GET", f"{TOPICS}?x={number}"))[0] == 200
        assert len(place.app.dispatcher.kept) <= ANSWERS_MAX

    run(place, ask)


def test_a_stored_password_goes_nowhere_else(place: Place) -> None:
    secret = 'sasl.jaas.config=x password="p";\nsecurity.protocol=SASL_SSL'

    async def ask() -> None:
        old = Address("default", "a:9092", secret)
        masked = old.masked()
        assert old.unmasked(masked, "a:9092") == properties_text(read_properties(secret))
        for text, bootstrap in ((masked, "evil:9092"), (f"{masked}\nschema.registry.url=http://evil", "a:9092")):
            with pytest.raises(SecretMovedError, match=r"sasl\.jaas\.config"):
                old.unmasked(text, bootstrap)
        place.cluster.address = old
        body = {"name": "default", "bootstrap": "evil:9092", "properties": masked}
        status, answer, _ = await place.ask("POST", "/api/cluster-test", body)
        assert (status, answer["error"]) == (400, "BAD_REQUEST")

    run(place, ask)


def test_pages_of_others_start_nothing_and_private_answers_are_not_kept(place: Place) -> None:
    async def ask() -> None:
        for site in ("cross-site", "same-site"):
            assert (await place.ask("GET", f"{ORDERS}/search?q=x", sec_fetch_site=site))[0] == 403
        assert (await place.ask("GET", "/c/default/topics", sec_fetch_site="cross-site"))[0] == 200, "links lead here"
        for path in (f"{ORDERS}/messages", "/api/clusters", "/api/session", "/api/audit"):
            assert (await place.ask("GET", path))[2]["cache-control"] == "no-store"
        assert (await place.ask("GET", TOPICS))[2]["cache-control"] == "private, no-cache"

    run(place, ask)


def test_refused_attempts_stand_in_the_trail_and_cannot_wash_it_out(tmp_path: Path) -> None:
    place = Place(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        anna, vera = await signed_in(place, "anna"), await signed_in(place, "vera")
        for number in range(REFUSALS_MAX + 5):
            assert (await place.ask("DELETE", f"{TOPICS}/t{number}", cookie=vera))[0] == 403
        _, answer, _ = await place.ask("GET", "/api/audit", cookie=anna)
        assert len(answer["entries"]) == REFUSALS_MAX
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
def test_properties_of_a_page_send_no_file_and_run_no_program(place: Place, line: str) -> None:
    properties = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=b\n{line}"

    async def ask() -> None:
        for method, path in (("POST", "/api/cluster-test"), ("POST", "/api/clusters")):
            body = {"name": "x", "bootstrap": "127.0.0.1:1", "properties": properties}
            status, answer, _ = await place.ask(method, path, body)
            assert (status, answer["error"]) == (400, "BAD_REQUEST")
            assert line.partition("=")[0] in answer["message"]
        Address("x", "127.0.0.1:1", properties, is_stored=False).client(1).close()

    run(place, ask)


OAUTH = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.client.credentials.client.id=me
sasl.oauthbearer.client.credentials.client.secret=hidden
sasl.oauthbearer.token.endpoint.url=http://localhost:{}/latest/meta-data"""


def test_a_token_endpoint_of_a_page_is_not_asked_inside() -> None:
    """Whoever names clusters could look at the console's network through it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        typed = Address("x", "127.0.0.1:1", OAUTH.format(listener.getsockname()[1]))
        with typed.client(1) as client:
            assert client.login is not None
            with pytest.raises(LoginError, match="an address inside"):
                client.login.make("broker").first()
        with pytest.raises(ClientError, match="an address inside"):
            open_monitor(typed, FixedClock())
        with pytest.raises(BlockingIOError):
            listener.accept()
    for trusted in (typed._replace(is_stored=False), typed._replace(allows_inside=True)):
        with trusted.client(1) as client:
            assert client.login is not None
            with pytest.raises(LoginError, match="refused"):
                client.login.make("broker").first()


def test_what_this_console_may_reach_is_told_to_its_clusters(place: Place) -> None:
    typed = Address("x", "127.0.0.1:1")
    assert place.console.bounded(typed).is_bounded
    place.console.message_workers.allows_private = True
    assert not place.console.bounded(typed).is_bounded


def test_a_private_key_is_masked() -> None:
    assert "secret words" not in Address("x", "a:1", "ssl.key.pem=secret words").masked()


def test_whoever_takes_a_right_from_himself_has_it_no_more(tmp_path: Path) -> None:
    place = Place(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        cookie = await signed_in(place, "anna")
        assert (await place.ask("PUT", "/api/people/anna", {"grants": [{"role": "admin"}]}, cookie=cookie))[0] == 200
        assert (await place.ask("GET", "/api/people", cookie=cookie))[0] == 200, "he stays signed in"
        assert (await place.ask("GET", f"{ORDERS}/messages", cookie=cookie))[0] == 403

    run(place, ask)


def test_tests_of_clusters_do_not_take_all_threads(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "TEST_TIMEOUT_MS", 200)
    monkeypatch.setattr(clusters, "TEST_TIMEOUT_MIN_MS", 20)

    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
            body = {"name": "x", "bootstrap": ",".join([bootstrap] * 50)}
            tests = [place.ask("POST", "/api/cluster-test", body) for _ in range(TESTS_MAX + 3)]
            found = [status for status, _, _ in await asyncio.gather(*tests)]
            assert (found.count(504), found.count(429)) == (TESTS_MAX, 3)
            assert not place.console.cluster_tests

    run(place, ask)


def test_streams_do_not_take_all_connections(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAMS_MAX", 3)
    place.console.ages = dict  # type: ignore[method-assign]

    async def ask() -> None:
        streams = [asyncio.create_task(place.ask("GET", "/api/events")) for _ in range(3)]
        await asyncio.sleep(1)
        assert (await place.ask("GET", "/api/events"))[0] == 503
        streams[0].cancel()
        await asyncio.sleep(1)
        assert place.console.event_streams == 2
        place.console.end_streams()
        assert [status for status, _, _ in await asyncio.gather(*streams[1:])] == [200, 200]
        assert place.console.event_streams == 0

    run(place, ask)
