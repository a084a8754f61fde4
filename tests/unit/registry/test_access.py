"""Authentication, and rights to read and write subjects."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import pytest
from tests import virtual_time
from tests.unit.registry.nodes import Node, Reply

from ottla.base.passwords import FREE_FAILURES, hash_password, token_digest
from ottla.registry.access import AccessError, Authenticator, read_users

SECRET = hash_password("long enough", b"0" * 16)
TOKEN = f"sha256${token_digest('a-token')}"
USERS = f"""
# who : secret : rights
alice:{SECRET}:read=* write=orders-*
boss:{SECRET}:write=*
ci:{TOKEN}:read=orders-*
anonymous::read=public-*
"""
SCHEMA = {"schema": '"int"'}


def basic(name: str, password: str = "long enough") -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Basic " + base64.b64encode(f"{name}:{password}".encode()))]


BEARER = [(b"authorization", b"Bearer a-token")]


def play(story: Callable[[Node], Awaitable[None]]) -> None:
    async def whole() -> None:
        node = Node()
        for subject, schema in (("orders-value", '"int"'), ("secret-value", '"long"'), ("public-value", '"bytes"')):
            await node.register(subject, schema)
        node.app.access = Authenticator(read_users(USERS.splitlines()))
        await story(node)

    virtual_time.run(whole())


async def ask(node: Node, who: list[tuple[bytes, bytes]], method: str, target: str, body: object = None) -> Reply:
    return await node.ask(method, target, body, who)


ALLOWED = [
    (basic("alice"), "GET", "/subjects/secret-value/versions", 200),
    (basic("alice"), "POST", "/subjects/orders-new/versions", 200),
    (basic("alice"), "POST", "/subjects/secret-value/versions", 403),
    (basic("alice"), "DELETE", "/subjects/secret-value", 403),
    (basic("alice"), "PUT", "/config", 403),
    (basic("alice"), "PUT", "/config/orders-value", 200),
    (basic("alice"), "PUT", "/mode/secret-value", 403),
    (basic("alice"), "PUT", "/mode/orders-value", 403),
    (basic("boss"), "PUT", "/mode/orders-value", 200),
    (basic("boss"), "GET", "/subjects/secret-value/versions", 200),
    (basic("boss"), "PUT", "/config", 200),
    (BEARER, "GET", "/subjects/orders-value/versions/latest", 200),
    (BEARER, "GET", "/subjects/secret-value/versions/latest", 403),
    (BEARER, "POST", "/subjects/secret-value", 403),
    (BEARER, "POST", "/compatibility/subjects/secret-value/versions/latest", 403),
    (BEARER, "POST", "/subjects/orders-value/versions", 403),
    (BEARER, "GET", "/schemas/ids/1", 200),
    (BEARER, "GET", "/schemas/ids/2", 404),
    (BEARER, "GET", "/schemas/ids/2/schema", 404),
    ([], "GET", "/subjects/public-value/versions", 200),
    ([], "GET", "/subjects/orders-value/versions", 403),
    (basic("alice", "wrong password"), "GET", "/subjects", 401),
    (basic("nobody"), "GET", "/subjects", 401),
    (basic("ci"), "GET", "/subjects", 401),
    ([(b"authorization", b"Bearer other")], "GET", "/subjects", 401),
    ([(b"authorization", b"Basic %%%")], "GET", "/subjects", 401),
    ([(b"authorization", b"Basic \xe4")], "GET", "/subjects", 401),
    ([(b"authorization", b"Negotiate abc")], "GET", "/subjects", 401),
]


@pytest.mark.parametrize(("who", "method", "target", "status"), ALLOWED)
def test_rights(who: list[tuple[bytes, bytes]], method: str, target: str, status: int) -> None:
    async def story(node: Node) -> None:
        settings = {"mode": "READONLY"} if target.startswith("/mode") else {"compatibility": "NONE"}
        reply = await ask(node, who, method, target, {"POST": SCHEMA, "PUT": settings}.get(method))
        assert reply.status == status, reply
        assert ("www-authenticate" in reply.headers) == (status == 401)

    play(story)


def test_lists_leave_out_what_is_not_seen() -> None:
    async def story(node: Node) -> None:
        assert (await ask(node, BEARER, "GET", "/subjects")).body == ["orders-value"]
        assert [item["subject"] for item in (await ask(node, BEARER, "GET", "/schemas")).body] == ["orders-value"]
        assert (await ask(node, [], "GET", "/subjects")).body == ["public-value"]
        assert len((await ask(node, basic("boss"), "GET", "/subjects")).body) == 3

    play(story)


def test_an_alias_does_not_bypass_rights() -> None:
    async def story(node: Node) -> None:
        alias = {"alias": "secret-value"}
        assert (await ask(node, basic("boss"), "PUT", "/config/orders-alias", alias)).status == 200
        assert (await ask(node, BEARER, "GET", "/subjects/orders-alias/versions/latest")).status == 403

    play(story)


def test_too_many_wrong_passwords_must_wait() -> None:
    async def story() -> None:
        node = Node()
        node.app.access = Authenticator(read_users(USERS.splitlines()), virtual_time.LoopClock())
        for _ in range(FREE_FAILURES):
            assert (await ask(node, basic("alice", "wrong"), "GET", "/subjects")).status == 401
        assert (await ask(node, basic("alice"), "GET", "/subjects")).status == 429

    virtual_time.run(story())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("alice", "write NAME:SECRET"),
        (":x:read=*", "write NAME:SECRET"),
        ("alice:plain:read=*", "was not created by"),
        (f"alice:{SECRET}:delete=*", "is not a right"),
        (f"alice:{SECRET}:read", "is not a right"),
        (f"alice:{SECRET}:read=a read=b", "is not a right"),
        (f"alice:{SECRET}:read=*\nalice:{SECRET}:read=*", "is listed twice"),
    ],
)
def test_a_file_that_makes_no_sense(line: str, words: str) -> None:
    with pytest.raises(AccessError, match=words):
        read_users(line.splitlines())
