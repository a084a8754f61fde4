"""Messages in the API: rights, masks, copies, and searches that end."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.console.test_api import ConsoleFixture, run
from tests.unit.operations.messages.cluster import Cluster as Logs

from ottla.base.passwords import hash_password
from ottla.client.client import Client
from ottla.console.api.messages import MessagePage, MessageRow
from ottla.console.auth.rights import Grant
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.message_workers import SEARCH_THREADS, MessageWorkers
from ottla.console.store import Person

ORDERS = "/api/clusters/default/topics/orders"
LOGS = Logs(2)


class FakeAddress(ClusterAddress):
    """Leads to logs in memory."""

    def make_client(self, timeout_ms: int, patience_ms: int = 0) -> Client:
        return LOGS.client()


class FakeReader:
    def refresh(self, *_: object) -> None:
        pass


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ConsoleFixture]:
    yield from _places(tmp_path)


def _places(folder: Path, **options: Any) -> Iterator[ConsoleFixture]:
    LOGS.__init__(2)  # type: ignore[misc]
    LOGS.logs[0].append([b'{"id": 1, "card": "4111"}', b'{"id": 2, "card": "4222"}', None])
    LOGS.logs[1].append([b"text", b"\xff"])
    place = ConsoleFixture(folder, **options)
    place.cluster.address = FakeAddress("default", "a:9092")
    place.cluster.reader = FakeReader()  # type: ignore[attr-defined]
    yield place


def lines(data: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_page_one_message_and_its_types(place: ConsoleFixture) -> None:
    async def ask() -> None:
        status, page, _ = await place.ask("GET", f"{ORDERS}/messages?limit=2&partition=0")
        assert status == 200
        assert [row["offset"] for row in page["messages"]] == [2, 1]
        msgspec.convert(page, MessagePage)
        older = (await place.ask("GET", f"{ORDERS}/messages?partition=0&cursor={page['cursor']}"))[1]
        assert [row["offset"] for row in older["messages"]] == [0]
        assert not older["has_more"]
        found = (await place.ask("GET", f"{ORDERS}/messages/0/1"))[1]
        assert found["value"]["json"] == {"id": 2, "card": "4222"}
        msgspec.convert(found, MessageRow)
        assert (await place.ask("GET", f"{ORDERS}/messages/0/9"))[0] == 404
        assert (await place.ask("GET", "/api/clusters/default/topics/none/messages"))[0] == 404

    run(place, ask)


def test_reading_messages_is_a_right_of_its_own(tmp_path: Path) -> None:
    people = tuple(
        Person(name, hash_password("password"), [Grant(role, may_read_messages=may)])
        for name, role, may in (("steers", "operator", False), ("reads", "viewer", True))
    )

    def signed(name: str) -> str:
        return f"Basic {base64.b64encode(f'{name}:password'.encode()).decode()}"

    for place in _places(tmp_path, needs_sign_in=True, people=people):

        async def ask(place: ConsoleFixture = place) -> None:
            for path in ("messages", "messages/0/0", "search?q=text", "message-file"):
                assert (await place.ask("GET", f"{ORDERS}/{path}", authorization=signed("steers")))[0] == 403
                assert (await place.ask("GET", f"{ORDERS}/{path}"))[0] == 401
            assert (await place.ask("GET", f"{ORDERS}/messages", authorization=signed("reads")))[0] == 200
            new = {"value": "x", "partition": 1}
            assert (await place.ask("POST", f"{ORDERS}/messages", new, authorization=signed("reads")))[0] == 403
            assert (await place.ask("POST", f"{ORDERS}/messages", new, authorization=signed("steers")))[0] == 200
            copy = {"copy_of": {"topic": "orders", "partition": 0, "offset": 0}}
            status, answer, _ = await place.ask("POST", f"{ORDERS}/messages", copy, authorization=signed("steers"))
            assert (status, answer["error"]) == (403, "FORBIDDEN"), "who may not read may not copy either"
            assert (await place.ask("GET", "/api/clusters/default/masks", authorization=signed("steers")))[0] == 403

        run(place, ask)


def test_new_messages_and_copies(place: ConsoleFixture) -> None:
    async def ask() -> None:
        body = {"key": "aw==", "value": None, "headers": [["h", "dg=="]], "partition": 1, "encoding": "base64"}
        status, written, _ = await place.ask("POST", f"{ORDERS}/messages", body)
        assert (status, written) == (200, {"partition": 1, "offset": 2})
        found = (await place.ask("GET", f"{ORDERS}/messages/1/2"))[1]
        assert (found["key"]["text"], found["value"]["format"]) == ("k", "null")
        assert found["headers"] == [{"name": "h", "value": "v", "bytes": 1}]
        copy = {"copy_of": {"topic": "orders", "partition": 1, "offset": 1}, "partition": 0}
        assert (await place.ask("POST", f"{ORDERS}/messages", copy))[1] == {"partition": 0, "offset": 3}
        assert (await place.ask("GET", f"{ORDERS}/messages/0/3"))[1]["value"]["hex"] == "ff"
        missing = {"copy_of": {"topic": "orders", "partition": 1, "offset": 99}}
        assert (await place.ask("POST", f"{ORDERS}/messages", missing))[0] == 404
        for wrong in ({"value": "%", "encoding": "base64"}, {"encoding": "x"}):
            assert (await place.ask("POST", f"{ORDERS}/messages", wrong))[0] == 400
        assert (await place.ask("POST", f"{ORDERS}/messages", {"value": "x", "partition": 9}))[0] == 404
        trail = (await place.ask("GET", "/api/audit"))[1]["entries"]
        assert "dg==" not in json.dumps(trail), "the audit trail has no contents"

    run(place, ask)


def test_what_is_hidden_is_hidden_everywhere(place: ConsoleFixture) -> None:
    async def ask() -> None:
        rules = {"rules": ["ord*:value.card"]}
        assert (await place.ask("PUT", "/api/clusters/default/masks", rules))[0] == 200
        assert (await place.ask("GET", "/api/clusters/default/masks"))[1] == rules
        for path in ("messages", "messages/0/0", "message-file", "message-file?format=csv", "search?q=card"):
            answer = (await place.ask("GET", f"{ORDERS}/{path}"))[1]
            data = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            assert b"***" in data
            assert b"4111" not in data
        assert lines((await place.ask("GET", f"{ORDERS}/search?q=4111"))[1])[-1]["end"]["hits"] == 0
        copy = {"copy_of": {"topic": "orders", "partition": 0, "offset": 0}}
        assert (await place.ask("POST", f"{ORDERS}/messages", copy))[1]["error"] == "MASKED"
        assert (await place.ask("PUT", "/api/clusters/default/masks", {"rules": ["nonsense"]}))[0] == 400

    run(place, ask)


def test_a_search_says_what_it_found_and_what_not(place: ConsoleFixture) -> None:
    async def ask() -> None:
        LOGS.offline.add(1)
        events = lines((await place.ask("GET", f"{ORDERS}/search?q=value.id%3E0&limit=1&order=oldest"))[1])
        assert [event["hit"]["offset"] for event in events if "hit" in event] == [0]
        end = events[-1]["end"]
        assert (end["hits"], end["has_trouble"]) == (1, True)
        assert [(item["partition"], item["start"], item["end"]) for item in end["unread"]] == [(0, 1, 3), (1, 0, None)]
        unknown = lines((await place.ask("GET", "/api/clusters/default/topics/none/search?q=x"))[1])
        assert unknown == [{"error": "topic none does not exist"}]
        place.console.message_workers.searches.taken = SEARCH_THREADS
        assert (await place.ask("GET", f"{ORDERS}/search?q=x"))[0] == 429

    run(place, ask)


def test_an_incomplete_download_is_aborted(place: ConsoleFixture) -> None:
    async def ask() -> None:
        LOGS.offline.add(1)
        with pytest.raises(Exception, match="some records could not be read"):
            await place.ask("GET", f"{ORDERS}/message-file")
        assert place.console.message_workers.searches.taken == 0

    run(place, ask)


def test_registries_of_the_command_line_may_be_inside_others_not() -> None:
    workers = MessageWorkers()
    named = ClusterAddress(
        "a", "a:1", "schema.registry.url=http://127.0.0.1:1\nbasic.auth.user.info=u:p", is_stored=False
    )
    address = workers.schemas(named).client.address  # type: ignore[union-attr]
    assert (address.url, address.user, address.password, address.is_internal_allowed) == (
        "http://127.0.0.1:1",
        "u",
        "p",
        True,
    )
    typed = workers.schemas(named._replace(is_stored=True)).client.address  # type: ignore[union-attr]
    assert not typed.is_internal_allowed
    assert workers.schemas(named._replace(properties="")) is None
    assert "p" not in ClusterAddress("a", "a:1", "basic.auth.user.info=p").masked_properties().partition("=")[2]
    broken = workers.schemas(named._replace(properties="schema.registry.url=nonsense"))
    for url, words in (("http://[", "is not the address of a registry"), ("http://a:secret@b", "basic.auth.user.info")):
        found = workers.schemas(ClusterAddress("odd", "a:1", f"schema.registry.url={url}"))
        assert found is not None
        with pytest.raises(Exception, match=words) as told:
            found.decode(1, b"")
        assert "secret" not in str(told.value)
    with pytest.raises(Exception, match="is not the address of a registry"):
        broken.decode(1, b"")  # type: ignore[union-attr]
    workers.stop()
