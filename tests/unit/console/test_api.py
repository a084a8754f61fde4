"""Application, routes, bodies, rights and audit trail: requests against the real application, with a fake cluster."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests import virtual_time

from ottla.base.names import TopicPartition
from ottla.base.passwords import hash_password
from ottla.client.admin import Partition, Topic
from ottla.client.errors import ClientError
from ottla.console.api.dispatch import BODY_BYTES_MAX, Dispatcher
from ottla.console.api.groups import group_row
from ottla.console.api.openapi import description
from ottla.console.api.routes import ROUTES
from ottla.console.api.routing import find_route
from ottla.console.app import App, Assets, allowed_hosts
from ottla.console.auth.authentication import Authenticator
from ottla.console.auth.rights import FULL_GRANTS, Grant
from ottla.console.clusters.cluster import ClusterAddress, properties_text
from ottla.console.clusters.group_verdicts import PartitionVerdict, Verdict, VerdictState
from ottla.console.clusters.snapshot import Broker, Group, Snapshot
from ottla.console.console import Console
from ottla.console.store import DATABASE_FILE, Person, Store, Tables
from ottla.web.routing import RouteTable

TOPICS = "/api/clusters/default/topics"
TOPIC = Topic("orders", UUID(int=1), False, [Partition(0, 1, [1, 2], [1, 2]), Partition(1, 2, [2, 1], [2])])
HIDDEN = Topic("payments", UUID(int=2), False, [Partition(0, -1, [1], [])])
SNAPSHOT = Snapshot(
    version=7,
    brokers={1: Broker(1, "a", 9092, None), 2: Broker(2, "b", 9092, "r1")},
    controller_id=1,
    topics={"orders": TOPIC, "payments": HIDDEN},
    ends={TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 30},
    starts={TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 0},
    groups={"a/b ?": Group("a/b ?", "consumer", "Empty", "Classic")},
    commits={"a/b ?": {TopicPartition("orders", 1): 25}},
)


TOKEN = "the token of this start"


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


class FakeVerdictWatch:
    """Verdicts set by the test."""

    def __init__(self) -> None:
        self.state = VerdictState()
        self.wanted = 0

    def request(self) -> None:
        self.wanted += 1


class FakeCluster:
    """A cluster that only records changes."""

    def __init__(self) -> None:
        self.address = ClusterAddress("default", "a:9092")
        self.snapshot = SNAPSHOT
        self.changes: list[object] = []
        self.problem: Exception | None = None
        self.verdict_watch = FakeVerdictWatch()

    @property
    def version(self) -> str:
        return f"{self.snapshot.version}.{len(self.changes)}.{self.verdict_watch.state.version}"

    async def change(self, change: object, *arguments: object, refresh: object = ()) -> None:
        if self.problem is not None:
            raise self.problem
        self.changes.append((arguments, refresh))

    def stop(self) -> None:
        pass


class ConsoleFixture:
    """A console with a client for requests."""

    def __init__(self, folder: Path, *, needs_sign_in: bool = False, people: tuple[Person, ...] = ()) -> None:
        self.store = Store(folder / DATABASE_FILE)
        for person in people:
            self.store.run_sync(Tables.put_person, person)
        self.bearer = {} if needs_sign_in else {"authorization": f"Bearer {TOKEN}"}
        signing_in = Authenticator(
            self.store,
            FixedClock(),
            is_needed=needs_sign_in,
            is_secure=False,
            port=8080,
            local_token="" if needs_sign_in else TOKEN,
        )
        self.console = Console(self.store, signing_in, FixedClock(), ROUTES)
        self.cluster = FakeCluster()
        self.console.clusters["default"] = self.cluster  # type: ignore[assignment]
        self.app = App(Dispatcher(self.console, ROUTES), Assets(), allowed_hosts("127.0.0.1"))
        self.client = "127.0.0.1"  # where requests come from

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Without sign-in, adds the token, unless the test sets a cookie or an authorization."""
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        given = {"host": "127.0.0.1:8080", **({"content-type": "application/json"} if body is not None else {})}
        given |= self.bearer if not {"cookie", "authorization"} & headers.keys() else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        raw, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": (self.client, 5),
            "server": ("127.0.0.1", 8080),
            "scheme": "http",
        }
        told: list[Any] = []

        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:  # the client stays connected
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            told.append(message)

        await self.app(scope, receive, send)
        answered = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in told[1:])
        return told[0]["status"], _decoded(text, answered), answered


def _decoded(text: bytes, headers: dict[str, str]) -> Any:
    is_json = text[:1] in (b"{", b"[") and "ndjson" not in headers.get("content-type", "")
    return msgspec.json.decode(text) if is_json else text


def run(place: ConsoleFixture, ask: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await ask()

    try:
        virtual_time.run(main())
    finally:
        place.store.close()


@pytest.fixture
def place(tmp_path: Path) -> ConsoleFixture:
    return ConsoleFixture(tmp_path)


def test_lists_come_from_the_snapshot(place: ConsoleFixture) -> None:
    async def ask() -> None:
        status, answer, headers = await place.ask("GET", "/api/clusters/default/topics")
        assert status == 200
        orders = next(row for row in answer["topics"] if row["name"] == "orders")
        assert (orders["records"], orders["under_replicated"], orders["groups"]) == (36, 1, 1)
        tagged = await place.ask("GET", "/api/clusters/default/topics", if_none_match=headers["etag"])
        assert tagged[0] == 304
        place.cluster.snapshot = Snapshot(version=8)
        assert (await place.ask("GET", "/api/clusters/default/topics", if_none_match=headers["etag"]))[1] == {
            "topics": []
        }

    run(place, ask)


def test_a_group_may_have_any_name(place: ConsoleFixture) -> None:
    async def ask() -> None:
        status, answer, _ = await place.ask("GET", "/api/clusters/default/groups/a%2Fb%20%3F")
        assert status == 200
        assert answer["group"]["lag"] == 5
        assert (await place.ask("GET", "/api/clusters/default/groups/none"))[0] == 404

    run(place, ask)


def test_a_group_has_its_verdict_or_the_reason_why_there_is_none(place: ConsoleFixture) -> None:
    async def ask() -> None:
        place.cluster.verdict_watch.state = VerdictState(1, problem="may not read it")
        _, answer, _ = await place.ask("GET", "/api/clusters/default/groups")
        assert answer["verdicts"] == {"is_ready": False, "at_ms": 0, "problem": "may not read it"}
        assert answer["groups"][0]["verdict"] is None

        late = PartitionVerdict("STOP", 9_000, True)
        verdict = Verdict("ERR", 9_000, True, {TopicPartition("orders", 1): late})
        place.cluster.verdict_watch.state = VerdictState(2, 77, True, "", {"a/b ?": verdict})
        _, answer, _ = await place.ask("GET", "/api/clusters/default/groups")
        row = answer["groups"][0]
        assert (row["verdict"], row["lag_ms"], row["is_lag_older"], answer["verdicts"]["at_ms"]) == (
            "ERR", 9_000, True, 77,
        )  # fmt: skip
        _, answer, _ = await place.ask("GET", "/api/clusters/default/groups/a%2Fb%20%3F")
        row = answer["partitions"][0]
        assert (row["verdict"], row["lag_ms"], row["is_lag_older"]) == ("STOP", 9_000, True)
        assert place.cluster.verdict_watch.wanted == 3

    run(place, ask)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("GET", "/api/nothing", None, {}, 404, "NOT_FOUND"),
        ("GET", "/api/clusters/other/topics", None, {}, 404, "NOT_FOUND"),
        ("GET", "/c/default/nothing/at/all", None, {}, 404, "NOT_FOUND"),
        ("GET", "/static/..%2fapp.py", None, {}, 404, "NOT_FOUND"),
        ("GET", "/static/../app.py", None, {}, 404, "NOT_FOUND"),
        ("DELETE", "/api/clusters/default/topics", None, {}, 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/c/default/topics", None, {}, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/api/session", None, {"host": "evil.example"}, 421, "WRONG_HOST"),
        ("POST", TOPICS, {"name": "x"}, {"origin": "http://evil.example"}, 403, "FOREIGN_ORIGIN"),
        ("POST", TOPICS, {"name": "x"}, {"origin": "null"}, 403, "FOREIGN_ORIGIN"),
        ("POST", TOPICS, {"name": "x"}, {"sec_fetch_site": "cross-site"}, 403, "FOREIGN_ORIGIN"),
        ("POST", TOPICS, {"name": "x"}, {"content_type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", TOPICS, {"nme": "x"}, {}, 400, "BAD_REQUEST"),
        ("POST", TOPICS, {"name": 5}, {}, 400, "BAD_REQUEST"),
        ("POST", TOPICS, b'{"name": NaN}', {}, 400, "BAD_REQUEST"),
        ("POST", TOPICS, b"[" * 200_000, {}, 400, "BAD_REQUEST"),
        ("POST", TOPICS, b"\xff\xfe", {}, 400, "BAD_REQUEST"),
        ("POST", TOPICS, b"x" * (BODY_BYTES_MAX + 1), {}, 413, "TOO_LARGE"),
        ("POST", TOPICS, {"name": "x"}, {"content_length": "100000000000"}, 413, "TOO_LARGE"),
        ("GET", "/api/clusters/default/brokers/x", None, {}, 400, "BAD_REQUEST"),
        ("GET", "/api/clusters/default/brokers/9", None, {}, 404, "NOT_FOUND"),
        ("GET", "/api/clusters/default/topics/nothing", None, {}, 404, "NOT_FOUND"),
        ("GET", "/api/clusters/default/topics/a%20b", None, {}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/api/clusters/default/topic-deletions", {"names": []}, {}, 400, "BAD_REQUEST"),
        ("GET", "/api/clusters/default/history?hours=99999", None, {}, 400, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_reason(
    place: ConsoleFixture, method: str, path: str, body: object, headers: dict[str, str], status: int, code: str
) -> None:
    async def ask() -> None:
        found = await place.ask(method, path, body, **headers)
        assert (found[0], found[1]["error"]) == (status, code)
        assert found[1]["message"]
        assert not place.cluster.changes

    run(place, ask)


def test_every_answer_forbids_what_is_not_ours(place: ConsoleFixture) -> None:
    async def ask() -> None:
        for path in ("/api/session", "/api/nothing", "/c/default/topics", "/static/style.css"):
            _, _, headers = await place.ask("GET", path)
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "require-trusted-types-for 'script'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"

    run(place, ask)


def test_changes_and_refusals_stand_in_the_trail(place: ConsoleFixture) -> None:
    async def ask() -> None:
        assert (await place.ask("PUT", "/api/clusters/default/topics/orders/partitions", {"partitions": 5}))[0] == 204
        place.cluster.problem = ClientError("cannot reach a:9092: connection refused")
        assert (await place.ask("DELETE", "/api/clusters/default/topics/orders"))[0] == 503
        _, answer, _ = await place.ask("GET", "/api/audit")
        refused, done = answer["entries"]
        assert (done["target"], done["before"], done["after"]) == ("orders", '{"partitions":2}', '{"partitions":5}')
        assert (done["outcome"], done["person"]) == ("done", "local")
        assert "connection refused" in refused["outcome"]

    run(place, ask)


PEOPLE = (
    Person("anna", hash_password("anna's password"), list(FULL_GRANTS)),
    Person("olga", hash_password("olga's password"), [Grant("operator", names="orders*")]),
    Person("vera", hash_password("vera's password"), [Grant("viewer")]),
)


async def signed_in(place: ConsoleFixture, name: str) -> str:
    status, _, headers = await place.ask("POST", "/api/session", {"name": name, "password": f"{name}'s password"})
    assert status == 204
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    return headers["set-cookie"].partition(";")[0]


def test_nothing_is_visible_before_sign_in(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        for route in ROUTES:
            if route.required_role is None:
                continue
            path = route.path.replace("{cluster}", "default").replace("{", "").replace("}", "")
            body = {} if route.body is not None else None
            assert (await place.ask(route.method, path, body))[0] == 401, path
        wrong = await place.ask("POST", "/api/session", {"name": "anna", "password": "guess"})
        assert (wrong[0], wrong[1]["error"]) == (401, "WRONG_PASSWORD")

    run(place, ask)


def test_every_role_allows_its_operations(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        cookie = await signed_in(place, "vera")
        assert (await place.ask("GET", "/api/clusters/default/topics", cookie=cookie))[0] == 200
        assert (await place.ask("DELETE", "/api/clusters/default/topics/orders", cookie=cookie))[0] == 403
        assert (await place.ask("GET", "/api/audit", cookie=cookie))[0] == 403
        cookie = await signed_in(place, "olga")
        _, answer, _ = await place.ask("GET", "/api/clusters/default/topics", cookie=cookie)
        assert [row["name"] for row in answer["topics"]] == ["orders"], "others are hidden"
        assert (await place.ask("GET", "/api/clusters/default/topics/payments", cookie=cookie))[0] == 403
        assert (await place.ask("DELETE", "/api/clusters/default/topics/orders", cookie=cookie))[0] == 204
        several = await place.ask(
            "POST", "/api/clusters/default/topic-deletions", {"names": ["orders", "payments"]}, cookie=cookie
        )
        assert several[0] == 403
        created = await place.ask("POST", TOPICS, {"name": "other"}, cookie=cookie)
        assert created[0] == 403
        assert len(place.cluster.changes) == 1
        cookie = await signed_in(place, "anna")
        assert (await place.ask("GET", "/api/people", cookie=cookie))[0] == 200

    run(place, ask)


def test_signing_out_ends_the_session_and_what_runs_under_it(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        cookie = await signed_in(place, "vera")
        session = next(iter(place.console.authenticator.sessions.by_secret.values()))
        assert (await place.ask("DELETE", "/api/session", cookie=cookie))[0] == 204
        assert session.ended.is_set()
        assert (await place.ask("GET", "/api/clusters/default/topics", cookie=cookie))[0] == 401

    run(place, ask)


def test_programs_come_with_basic_or_a_token(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        basic = "Basic " + base64.b64encode(b"vera:vera's password").decode()
        assert (await place.ask("GET", "/api/clusters/default/topics", authorization=basic))[0] == 200
        status, made, _ = await place.ask("POST", "/api/tokens", {"label": "a script"}, authorization=basic)
        assert status == 200
        bearer = f"Bearer {made['token']}"
        assert (await place.ask("GET", "/api/clusters/default/topics", authorization=bearer))[0] == 200
        assert (await place.ask("GET", "/api/clusters/default/topics", authorization="Bearer no"))[0] == 401
        assert (await place.ask("DELETE", f"/api/tokens/{made['token_id']}", authorization=bearer))[0] == 204
        assert (await place.ask("GET", "/api/clusters/default/topics", authorization=bearer))[0] == 401

    run(place, ask)


def test_changed_rights_end_the_sessions(tmp_path: Path) -> None:
    place = ConsoleFixture(tmp_path, needs_sign_in=True, people=PEOPLE)

    async def ask() -> None:
        vera, anna = await signed_in(place, "vera"), await signed_in(place, "anna")
        body = {"grants": [{"role": "operator"}]}
        assert (await place.ask("PUT", "/api/people/vera", body, cookie=anna))[0] == 200
        assert (await place.ask("GET", "/api/clusters", cookie=vera))[0] == 401
        assert (await place.ask("DELETE", "/api/people/anna", cookie=anna))[0] == 409, (
            "an admin cannot remove the own account"
        )
        assert (await place.ask("PUT", "/api/people/anna", body, cookie=anna))[0] == 409

    run(place, ask)


def test_the_description_names_every_route() -> None:
    found = description(tuple(ROUTES), "ottla_session_8080")
    assert {(path, method.upper()) for path, item in found["paths"].items() for method in item} == {
        (route.path, route.method) for route in ROUTES
    }
    assert found["components"]["schemas"]["TopicRow"]["properties"]["records"]


def test_a_path_is_matched_piece_by_piece() -> None:
    table = RouteTable([("GET", "/a/{x}", 1), ("GET", "/a/{x}/b", 2), ("POST", "/a/{x}", 3)])
    assert find_route(table, "GET", b"/a/p%2Fq").parameters == {"x": "p/q"}
    assert find_route(table, "GET", b"/a/p/b").target == 2
    assert find_route(table, "PUT", b"/a/p").allowed_methods == ("GET", "POST")
    assert find_route(table, "GET", b"/a/").target is None
    assert find_route(table, "GET", b"/a//b").target is None
    assert find_route(table, "GET", b"/a/%ff").target is None


def test_secrets_of_clusters_are_masked_and_survive_being_edited() -> None:
    address = ClusterAddress("x", "a:9092", "sasl.jaas.config=secret words\nssl.truststore.location=/a b")
    assert "secret words" not in address.masked_properties()
    assert "/a b" in address.masked_properties()
    edited = address.unmask_properties(address.masked_properties().replace("/a b", "/c"), address.bootstrap)
    assert "secret words" in edited
    assert "/c" in edited
    assert properties_text({"a": "x\\y\nz"}) == "a=x\\\\y\\nz"


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / DATABASE_FILE)
    assert (tmp_path / "deep" / DATABASE_FILE).stat().st_mode & 0o777 == 0o600
    store.close()


@pytest.mark.parametrize(
    ("state", "coordinator", "members"), [("Stable", None, None), ("Empty", None, 0), ("Stable", 1, 0)]
)
def test_a_group_of_another_protocol_has_no_number_of_members(
    state: str, coordinator: int | None, members: int | None
) -> None:
    """Groups of Connect, Kafka Streams and share consumers were Stable with 0 members."""
    group = Group("workers", "connect", state, "Classic", coordinator=coordinator)
    assert group_row(Snapshot(), group).members is members
