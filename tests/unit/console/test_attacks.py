"""What somebody may try who means no good: each of these once worked, or ended in an error of ours."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.console.test_api import PEOPLE, TOPICS, Place, run, signed_in
from tests.unit.console.test_messages import LOGS, ORDERS, _places, lines

from ottla.base.errors import Error
from ottla.client.errors import ClientError
from ottla.console.api.errors import of_cluster

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
