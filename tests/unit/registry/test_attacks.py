"""Malicious requests: each gets an error code, and none reads or changes what its user may not."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tests.unit.registry.nodes import Node
from tests.unit.registry.test_access import BEARER, USERS, basic
from tests.unit.registry.test_several_nodes import Elected, Follower
from tests.virtual_time import run

from ottla.registry.access import Authenticator, read_users
from ottla.registry.http.fast_path import FastPath
from ottla.registry.kafka_store import KafkaStore, ReadRecord
from ottla.registry.records import Key, decode_key, encode_key
from ottla.registry.subjects.state import RegistryState


async def started(*subjects: tuple[str, dict[str, Any]]) -> Node:
    """A node with these schemas, and users after that."""
    node = Node()
    for subject, body in subjects:
        assert (await node.ask("POST", f"/subjects/{subject}/versions", body)).status == 200
    node.app.access = Authenticator(read_users(USERS.splitlines()))
    return node


SECRET = ("secret-value", {"schema": '{"type":"record","name":"Secret","fields":[{"name":"key","type":"string"}]}'})
USER = '{"type":"record","name":"User","fields":[{"name":"s","type":"Secret"}]}'
REFERENCE = [{"name": "Secret", "subject": "secret-value", "version": 1}]


@pytest.mark.parametrize(
    ("method", "target", "headers", "status", "code"),
    [
        ("GET", "/schemas/ids/-+5", [], 404, 404),
        ("GET", "/subjects/s/versions/-+5", [], 422, 42202),
        ("DELETE", "/subjects/:.c:", [], 404, 40401),
        ("DELETE", "/subjects/:.c:?permanent=true", [], 404, 40401),
        ("POST", "/subjects/s", [(b"origin", b"http://[")], 403, 403),
    ],
)
def test_invalid_requests_get_the_reason(
    method: str, target: str, headers: list[tuple[bytes, bytes]], status: int, code: int
) -> None:
    async def story() -> None:
        node = Node()
        await node.register("s", '"int"')
        await node.register(":.c:x", '"int"')
        reply = await node.ask(method, target, {"schema": '"int"'} if method == "POST" else None, headers)
        assert (reply.status, reply.code) == (status, code)

    run(story())


@pytest.mark.parametrize("text", ["0" * 30_000 + "!", "0x" + "0" * 30_000 + "!", "." + "9" * 30_000 + "!"])
def test_a_default_of_thousands_of_digits_kept_the_registry_busy_for_seconds(text: str) -> None:
    async def story() -> None:
        node = Node()
        schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "double", "default": text}]}
        start = time.process_time()
        reply = await node.ask("POST", "/subjects/s/versions", {"schema": json.dumps(schema)})
        assert (reply.status, reply.code) == (422, 42201)
        assert time.process_time() - start < 1.0

    run(story())


def test_a_host_that_is_none_is_refused() -> None:
    async def story() -> None:
        node = Node()
        quick = FastPath(node.app, node.registry.state)
        answer = quick.answer(b"GET /subjects HTTP/1.1\r\nhost: [\r\n\r\n")
        assert answer is not None
        assert answer.startswith(b"HTTP/1.1 403 ")

    run(story())


def test_the_mode_of_the_default_context_is_the_global_one() -> None:
    async def story() -> None:
        node = Node()
        assert (await node.ask("PUT", "/mode/:.:", {"mode": "READONLY"})).status == 200
        assert (await node.ask("GET", "/mode/:.:")).body == {"mode": "READONLY"}
        assert (await node.ask("GET", "/mode")).body == {"mode": "READONLY"}

    run(story())


@pytest.mark.parametrize("field", ["id", "version"])
def test_after_the_last_number_nothing_is_answered_that_would_be_lost(field: str) -> None:
    async def story() -> None:
        node = Node()
        await node.ask("PUT", "/mode/s", {"mode": "IMPORT"})
        numbers = {"id": 7, "version": 1} | {field: 2**31 - 1}
        assert (await node.register("s", '"int"', **numbers)).status == 200
        await node.ask("PUT", "/mode/s", {"mode": "READWRITE"})
        written = len(node.log.written)
        reply = await node.register("s", '"long"')
        assert (reply.status, reply.code) == (500, 50001)
        assert len(node.log.written) <= written + 1  # the NOOP of the takeover

    run(story())


def test_schemas_that_are_too_large_to_be_compared_are_refused() -> None:
    def union(kind: str) -> str:
        return json.dumps(
            [{"type": "record", "name": f"R{n}", "fields": [{"name": "f", "type": kind}]} for n in range(400)]
        )

    async def story() -> None:
        node = Node()
        assert (await node.register("s", union("int"))).status == 200
        reply = await node.register("s", union("long"))
        assert (reply.status, reply.code) == (422, 42201)

    run(story())


# Rights


def test_a_subject_of_another_context_is_not_read_by_its_bare_name() -> None:
    async def story() -> None:
        node = await started((":.hidden:orders-value", {"schema": '"long"'}))
        assert (await node.ask("GET", "/subjects/orders-value/versions/1", None, BEARER)).status == 404
        assert (await node.ask("GET", "/subjects/orders-value/versions/1/schema", None, BEARER)).status == 404
        assert (await node.ask("GET", "/subjects/orders-value/versions/1/referencedby", None, BEARER)).status == 404
        assert (await node.ask("POST", "/subjects/orders-value", {"schema": '"long"'}, BEARER)).status == 404
        assert (await node.ask("GET", "/subjects/orders-value/versions/1", None, basic("alice"))).status == 200

    run(story())


def test_an_id_names_only_subjects_that_may_be_read() -> None:
    async def story() -> None:
        same = {"schema": '"int"'}
        node = await started(("a-secret", same), ("orders-value", same))
        more = [*BEARER, (b"confluent-accept-unknown-properties", b"true")]
        by_id = (await node.ask("GET", "/schemas/ids/1", None, more)).body
        assert by_id["subject"] == "orders-value"
        by_guid = (await node.ask("GET", f"/schemas/guids/{by_id['guid']}", None, more)).body
        assert by_guid["subject"] == "orders-value"

    run(story())


def test_references_do_not_reveal_unreadable_subjects() -> None:
    async def story() -> None:
        node = await started(SECRET)
        node.app.access = Authenticator(
            read_users(USERS.replace("read=* write=orders-*", "write=orders-*").splitlines())
        )
        body = {"schema": USER, "references": REFERENCE}
        for target in (
            "/subjects/orders-x/versions",
            "/subjects/orders-x",
            "/compatibility/subjects/orders-x/versions?verbose=true",
            "/compatibility/subjects/orders-x/versions/latest",
        ):
            reply = await node.ask("POST", target, body, basic("alice"))
            assert (reply.status, reply.code) == (422, 42201), target
        nothing = body | {"references": [REFERENCE[0] | {"version": 9}]}
        there = await node.ask("POST", "/subjects/orders-x/versions", body, basic("alice"))
        missing = await node.ask("POST", "/subjects/orders-x/versions", nothing, basic("alice"))
        assert there.body["message"].replace("version 1", "version 9") == missing.body["message"].replace(
            "version=9", "version=1"
        ), "whether it is there is not told"
        assert (await node.ask("POST", "/subjects/orders-x/versions", body, basic("boss"))).status == 200

    run(story())


def test_lists_hold_no_ids_contexts_or_aliases_of_what_is_not_seen() -> None:
    async def story() -> None:
        shared = ("orders-shared", SECRET[1])
        reference = [{"name": "Secret", "subject": "orders-shared", "version": 1}]
        user = ("secret-user", {"schema": USER, "references": reference})
        node = await started(shared, user, (":.hidden:x", {"schema": '"int"'}))
        await node.ask("PUT", "/config/secret-alias", {"alias": "orders-shared"}, basic("boss"))
        target = "/subjects/orders-shared/versions/1/referencedby"
        assert (await node.ask("GET", target, None, BEARER)).body == []
        assert (await node.ask("GET", target, None, basic("boss"))).body == [2]
        assert (await node.ask("GET", "/contexts", None, BEARER)).body == ["."]
        assert (await node.ask("GET", "/contexts", None, basic("boss"))).body == [".", ".hidden"]
        (found,) = (await node.ask("GET", "/schemas?aliases=true", None, BEARER)).body
        assert "aliases" not in found

    run(story())


def test_passwords_that_wait_are_bounded() -> None:
    async def story() -> None:
        node = await started()
        replies = await asyncio.gather(
            *(node.ask("GET", "/subjects", None, basic(f"unknown{number}")) for number in range(40))
        )
        statuses = [reply.status for reply in replies]
        assert set(statuses) == {401, 429}
        assert statuses.count(401) <= 20

    run(story())


def test_an_answer_at_once_checks_no_password_in_vain() -> None:
    async def story() -> None:
        node = await started()
        access = node.app.access
        assert access is not None
        name, value = basic("alice")[0]
        quick = FastPath(node.app, node.registry.state)
        request = b"GET /subjects HTTP/1.1\r\nhost: 127.0.0.1\r\n%b: %b\r\n\r\n" % (name, value)
        assert quick.answer(request) is None
        assert access.checks_in_progress == 0

    run(story())


# Nodes


def test_a_new_leader_first_reads_acknowledged_changes() -> None:
    async def story() -> None:
        elected = Elected(is_leader=True)
        node = Follower(elected)
        key, value = encode_key(Key("SCHEMA", "s", 1)), b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\""}'

        async def catch_up() -> None:
            node.caught_up += 1
            if not node.log.written:
                node.log.add(key, value)

        node.log.catch_up = catch_up  # type: ignore[method-assign]
        assert (await node.ask("GET", "/subjects")).body == ["s"]
        assert (await node.ask("GET", "/subjects")).body == ["s"]
        assert node.caught_up == 1
        elected.term = 2  # another node led in between
        node.log.add(key, None)
        assert (await node.ask("GET", "/subjects")).body == []
        assert node.caught_up == 2

    run(story())


def test_a_term_of_others_is_not_overlooked_by_quick_answers() -> None:
    async def story() -> None:
        elected = Elected(is_leader=True)
        node = Follower(elected)
        await node.ask("GET", "/subjects")
        quick = FastPath(node.app, node.registry.state)
        request = b"GET /subjects HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        assert quick.answer(request) is not None
        elected.term = 3
        assert quick.answer(request) is None, "it has to read first"

    run(story())


BAD_VALUES = [
    {"metadata": {"properties": {"a": 1}}},
    {"metadata": {"properties": 5}},
    {"metadata": {"tags": {"a": 5}}},
    {"metadata": {"sensitive": 5}},
    {"ruleSet": {"domainRules": 5}},
    {"ruleSet": {"domainRules": ["x"]}},
    {"ruleSet": {"domainRules": [{"name": "n", "params": {"a": 1}}]}},
    {"references": [{"name": "a", "subject": "b", "version": 2**40}]},
]


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_a_record_that_makes_no_sense_stops_no_registry(bad: dict[str, Any]) -> None:
    state = RegistryState()
    log = KafkaStore(lambda: None, "_schemas", 1, "group", state.apply)  # type: ignore[arg-type, return-value]
    key = encode_key(Key("SCHEMA", "s", 1))
    value = {"subject": "s", "version": 1, "id": 1, "schema": '"int"', **bad}

    class Taken:
        is_set = False

        def set(self) -> None:
            self.is_set = True

    taken = Taken()
    log._apply_records([ReadRecord(0, decode_key(key), value, key)], 1, taken)  # type: ignore[arg-type]
    assert taken.is_set
    assert (log.unreadable, log.position) == (1, 1)
    assert not state.subjects
    assert not state.contexts["."].by_id


def test_levels_of_ids_beyond_the_last_one_are_no_levels() -> None:
    state = RegistryState()
    state.apply(Key("NOOP"), {"maxIds": {".": 2**31, ":": -1, "x": True}})
    assert state.contexts["."].max_id == 0
