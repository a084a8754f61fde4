"""Recorded API calls with complete responses, as from Confluent's registry."""

import json
from typing import Any

import pytest
from tests.unit.registry.nodes import Node, record
from tests.virtual_time import run

from ottla.registry.forwarder import RawRequest, RawResponse

A, AB, B = record("a"), record("a", "b="), record("b")
EMPTY: dict[str, Any] = {}
NOT_FOUND = {"error_code": 404, "message": "HTTP 404 Not Found"}
NO_SUBJECT = {"error_code": 40401, "message": "Subject 's' not found."}
BAD_VERSION = (
    "The specified version '{}' is not a valid version id. "
    'Allowed values are between [1, 2^31-1] and the string "latest"'
)


def body(schema: str, **more: Any) -> dict[str, Any]:
    return {"schema": schema, **more}


def version(number: int, schema: str, subject: str = "s", version: int | None = None) -> dict[str, Any]:
    return {"subject": subject, "version": version or number, "id": number, "schema": schema}


TALKS: dict[str, list[tuple[Any, ...]]] = {
    "nothing is there yet": [
        ("GET", "/", None, {}),
        ("GET", "/subjects", None, []),
        ("GET", "/schemas", None, []),
        ("GET", "/contexts", None, ["."]),
        ("GET", "/schemas/types", None, ["JSON", "PROTOBUF", "AVRO"]),
        ("GET", "/config", None, {"compatibilityLevel": "BACKWARD"}),
        ("GET", "/mode", None, {"mode": "READWRITE"}),
        ("GET", "/subjects/s/versions", None, NO_SUBJECT),
        ("GET", "/subjects/s/versions/1", None, NO_SUBJECT),
        ("GET", "/subjects/s/versions/latest", None, NO_SUBJECT),
        ("GET", "/schemas/ids/1", None, {"error_code": 40403, "message": "Schema 1 not found"}),
        ("DELETE", "/subjects/s", None, NO_SUBJECT),
        ("DELETE", "/subjects/s/versions/1", None, NO_SUBJECT),
        ("POST", "/subjects/s", body(A), NO_SUBJECT),
        ("GET", "/config/s", None, 40408),
        (
            "GET",
            "/mode/s",
            None,
            {"error_code": 40409, "message": "Subject 's' does not have subject-level mode configured"},
        ),
        ("DELETE", "/config/s", None, NO_SUBJECT),
        ("DELETE", "/mode/s", None, NO_SUBJECT),
        ("GET", "/v1/metadata/version", None, 200),
        (
            "GET",
            "/v1/metadata/id",
            None,
            {
                "scope": {
                    "path": [],
                    "clusters": {"kafka-cluster": "the-cluster", "schema-registry-cluster": "schema-registry"},
                },
                "id": "",
            },
        ),
    ],
    "versions": [
        ("POST", "/subjects/s/versions", body(A), {"id": 1}),
        ("POST", "/subjects/s/versions", body(A), {"id": 1}),
        ("POST", "/subjects/s/versions", body(f"  {A} "), {"id": 1}),
        ("POST", "/subjects/s/versions", body(AB), {"id": 2}),
        ("POST", "/subjects/t/versions", body(A), {"id": 1}),
        ("GET", "/subjects", None, ["s", "t"]),
        ("GET", "/subjects/s/versions", None, [1, 2]),
        ("GET", "/subjects/s/versions/1", None, version(1, A)),
        ("GET", "/subjects/s/versions/latest", None, version(2, AB)),
        ("GET", "/subjects/s/versions/-1", None, version(2, AB)),
        ("GET", "/subjects/s/versions/3", None, {"error_code": 40402, "message": "Version 3 not found."}),
        ("GET", "/subjects/s/versions/0", None, {"error_code": 42202, "message": BAD_VERSION.format("0")}),
        ("GET", "/subjects/s/versions/x", None, {"error_code": 42202, "message": BAD_VERSION.format("x")}),
        ("GET", "/subjects/s/versions/-2", None, 42202),
        ("GET", "/subjects/s/versions/2147483648", None, 42202),
        ("GET", "/subjects/s/versions/2147483647", None, 40402),
        ("GET", "/schemas/ids/1", None, {"schema": A}),
        ("GET", "/schemas/ids/1?fetchMaxId=true", None, {"schema": A, "maxId": 2}),
        ("GET", "/schemas/ids/1/subjects", None, ["s", "t"]),
        ("GET", "/schemas/ids/1/versions", None, [{"subject": "s", "version": 1}, {"subject": "t", "version": 1}]),
        ("GET", "/schemas/ids/0", None, {"error_code": 40403, "message": "Schema 0 not found"}),
        ("GET", "/schemas/ids/-1", None, {"error_code": 40403, "message": "Schema -1 not found"}),
        ("GET", "/schemas/ids/2147483648", None, NOT_FOUND),
        ("GET", "/schemas/ids/x", None, NOT_FOUND),
        ("GET", "/schemas", None, [version(1, A), version(2, AB), version(1, A, "t")]),
        ("GET", "/schemas?latestOnly=true", None, [version(2, AB), version(1, A, "t")]),
        ("GET", "/schemas?subjectPrefix=t", None, [version(1, A, "t")]),
        ("GET", "/schemas?offset=1&limit=1", None, [version(2, AB)]),
        ("GET", "/subjects?subjectPrefix=t", None, ["t"]),
        ("GET", "/subjects?offset=1", None, ["t"]),
        ("GET", "/subjects?limit=1", None, ["s"]),
        ("GET", "/subjects?limit=x", None, NOT_FOUND),
        ("POST", "/subjects/s", body(AB), version(2, AB)),
        ("POST", "/subjects/s", body(B), {"error_code": 40403, "message": "Schema not found"}),
    ],
    "levels": [
        ("POST", "/subjects/s/versions", body(A), {"id": 1}),
        ("POST", "/subjects/s/versions", body(record("a", "c")), 409),
        ("POST", "/compatibility/subjects/s/versions/latest", body(record("a", "c")), {"is_compatible": False}),
        ("POST", "/compatibility/subjects/s/versions/1", body(AB), {"is_compatible": True}),
        (
            "POST",
            "/compatibility/subjects/s/versions/1?verbose=true",
            body(AB),
            {"is_compatible": True, "messages": []},
        ),
        ("POST", "/compatibility/subjects/s/versions/2", body(AB), 40402),
        ("POST", "/compatibility/subjects/no/versions/1", body(AB), 40402),
        ("POST", "/compatibility/subjects/no/versions/latest", body(AB), {"is_compatible": True}),
        ("POST", "/compatibility/subjects/no/versions", body(AB), {"is_compatible": True}),
        ("POST", "/compatibility/subjects/s/versions/latest", body("nope"), 42201),
        ("PUT", "/config/s", {"compatibility": "none"}, {"compatibility": "NONE"}),
        ("GET", "/config/s", None, {"compatibilityLevel": "NONE"}),
        ("POST", "/compatibility/subjects/s/versions/latest", body('"int"'), {"is_compatible": True}),
        ("POST", "/subjects/s/versions", body(record("a", "c")), {"id": 2}),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/config", {}, 42203),
        ("PUT", "/config", {"compatibility": "FULL"}, {"compatibility": "FULL"}),
        ("GET", "/config", None, {"compatibilityLevel": "FULL"}),
        ("GET", "/config/other?defaultToGlobal=true", None, {"compatibilityLevel": "FULL"}),
        ("DELETE", "/config/s", None, {"compatibilityLevel": "NONE"}),
        ("GET", "/config/s", None, 40408),
        ("GET", "/config/s?defaultToGlobal=true", None, {"compatibilityLevel": "FULL"}),
        ("DELETE", "/config", None, {"compatibilityLevel": "FULL"}),
        ("GET", "/config", None, {"compatibilityLevel": "BACKWARD"}),
        ("PUT", "/config/s", {"normalize": True, "compatibilityGroup": "major"}, 200),
        ("GET", "/config/s", None, {"normalize": True, "compatibilityGroup": "major"}),
        ("PUT", "/config/s", {"compatibilityGroup": None}, {}),
        ("GET", "/config/s?defaultToGlobal=true", None, {"normalize": True, "compatibilityLevel": "BACKWARD"}),
    ],
    "deleting": [
        ("POST", "/subjects/s/versions", body(A), {"id": 1}),
        ("POST", "/subjects/s/versions", body(AB), {"id": 2}),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, 40407),
        ("DELETE", "/subjects/s/versions/1", None, 1),
        ("DELETE", "/subjects/s/versions/1", None, 40406),
        ("GET", "/subjects/s/versions", None, [2]),
        ("GET", "/subjects/s/versions?deleted=true", None, [1, 2]),
        ("GET", "/subjects/s/versions?deletedOnly=true", None, [1]),
        ("GET", "/subjects/s/versions/1", None, 40402),
        ("GET", "/subjects/s/versions/1?deleted=true", None, version(1, A)),
        ("GET", "/schemas/ids/1", None, {"schema": A}),
        ("GET", "/schemas/ids/1/subjects", None, []),
        ("GET", "/schemas/ids/1/subjects?deleted=true", None, ["s"]),
        ("POST", "/subjects/s", body(A), 40403),
        ("POST", "/subjects/s?deleted=true", body(A), version(1, A)),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, 1),
        ("GET", "/schemas/ids/1", None, 40403),
        ("GET", "/subjects/s/versions?deleted=true", None, [2]),
        ("DELETE", "/subjects/s?permanent=true", None, 40405),
        ("PUT", "/config/s", {"compatibility": "FULL"}, 200),
        ("DELETE", "/subjects/s", None, [2]),
        ("GET", "/config/s", None, 40408),
        ("DELETE", "/subjects/s", None, 40404),
        ("GET", "/subjects", None, []),
        ("GET", "/subjects?deleted=true", None, ["s"]),
        ("GET", "/subjects?deletedOnly=true", None, ["s"]),
        ("GET", "/subjects/s/versions", None, NO_SUBJECT),
        ("POST", "/subjects/s/versions", body(AB), {"id": 2}),
        ("GET", "/subjects/s/versions", None, [3]),
        ("GET", "/subjects/s/versions?deleted=true", None, [3]),
        ("DELETE", "/subjects/s/versions/latest", None, 3),
        ("DELETE", "/subjects/s?permanent=true", None, [3]),
        ("DELETE", "/subjects/s?permanent=true", None, NO_SUBJECT),
        ("POST", "/subjects/s/versions", body(B), {"id": 3}),
        ("GET", "/subjects/s/versions", None, [1]),
    ],
    "references": [
        ("POST", "/subjects/r/versions", body(record("a", name="Inner")), {"id": 1}),
        (
            "POST",
            "/subjects/s/versions",
            body('{"type":"array","items":"Inner"}', references=[{"name": "Inner", "subject": "r", "version": 1}]),
            {"id": 2},
        ),
        ("GET", "/subjects/r/versions/1/referencedby", None, [2]),
        ("GET", "/subjects/s/versions/1/referencedby", None, []),
        ("GET", "/subjects/r/versions/2/referencedby", None, 40402),
        (
            "DELETE",
            "/subjects/r/versions/1",
            None,
            {
                "error_code": 42206,
                "message": "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=r,version=1}.",
            },
        ),
        ("DELETE", "/subjects/r", None, 42206),
        ("POST", "/subjects/s/versions", body(A, references=[{"name": "x", "subject": "no", "version": 1}]), 42201),
        ("POST", "/subjects/s/versions", body(A, references=[{"name": "x"}]), 422),
        ("DELETE", "/subjects/s", None, [1]),
        ("GET", "/subjects/r/versions/1/referencedby", None, []),
        ("DELETE", "/subjects/r", None, [1]),
    ],
    "modes": [
        ("PUT", "/mode", {"mode": "UPSIDEDOWN"}, 42204),
        ("PUT", "/mode", {}, 42204),
        (
            "POST",
            "/subjects/s/versions",
            body(A, id=7),
            {"error_code": 42205, "message": "Subject s is not in import mode"},
        ),
        ("PUT", "/mode/s", {"mode": "IMPORT"}, {"mode": "IMPORT"}),
        ("GET", "/mode/s", None, {"mode": "IMPORT"}),
        ("GET", "/mode/t?defaultToGlobal=true", None, {"mode": "READWRITE"}),
        (
            "POST",
            "/subjects/s/versions",
            body(A),
            {"error_code": 42205, "message": "Subject s is not in read-write mode"},
        ),
        ("POST", "/subjects/s/versions", body(A, id=7, version=3), {"id": 7}),
        ("POST", "/subjects/s/versions", body('"int"', id=9, version=5), {"id": 9}),
        ("POST", "/subjects/s/versions", body(B, id=7), 42205),
        ("GET", "/subjects/s/versions", None, [3, 5]),
        ("DELETE", "/mode/s", None, {"mode": "IMPORT"}),
        (
            "PUT",
            "/mode/s",
            {"mode": "IMPORT"},
            {"error_code": 42205, "message": "Cannot import since found existing subjects"},
        ),
        ("PUT", "/mode/s?force=true", {"mode": "IMPORT"}, {"mode": "IMPORT"}),
        ("PUT", "/mode/s", {"mode": "READONLY"}, {"mode": "READONLY"}),
        ("POST", "/subjects/s/versions", body(B), {"error_code": 42205, "message": "Subject s is in read-only mode"}),
        ("POST", "/subjects/s/versions", body(A), {"id": 7}),
        ("DELETE", "/subjects/s", None, 42205),
        ("DELETE", "/subjects/s/versions/3", None, 42205),
        ("PUT", "/config/s", {"compatibility": "NONE"}, 42205),
        ("PUT", "/mode/s", {"mode": "FORWARD"}, {"mode": "FORWARD"}),
        ("POST", "/subjects/s/versions", body(B), 42205),
        ("DELETE", "/mode/s", None, {"mode": "FORWARD"}),
        ("PUT", "/mode", {"mode": "READONLY_OVERRIDE"}, 200),
        ("GET", "/mode/s", None, {"mode": "READONLY_OVERRIDE"}),
        ("POST", "/subjects/new/versions", body(A), 42205),
        ("PUT", "/mode", {"mode": "readwrite"}, {"mode": "READWRITE"}),
        ("POST", "/subjects/new/versions", body(A), {"id": 7}),
        ("POST", "/subjects/new/versions", body(AB), {"id": 10}),
    ],
    "contexts": [
        ("POST", "/subjects/:.test:s/versions", body(A), {"id": 1}),
        ("POST", "/subjects/s/versions", body(B), {"id": 1}),
        ("POST", "/contexts/.test/subjects/s/versions", body(AB), {"id": 2}),
        ("POST", "/contexts/test/subjects/t/versions", body(A), {"id": 1}),
        ("GET", "/contexts", None, [".", ".test"]),
        ("GET", "/subjects", None, [":.test:s", ":.test:t", "s"]),
        ("GET", "/subjects?subjectPrefix=:.test:", None, [":.test:s", ":.test:t"]),
        ("GET", "/subjects?subjectPrefix=:*:t", None, [":.test:t"]),
        ("GET", "/contexts/.test/subjects", None, [":.test:s", ":.test:t"]),
        ("GET", "/contexts/.test/subjects/s/versions", None, [1, 2]),
        ("GET", "/contexts/:.test:/schemas/ids/2", None, {"schema": AB}),
        ("GET", "/schemas/ids/1", None, {"schema": B}),
        ("GET", "/schemas/ids/1?subject=:.test:", None, {"schema": A}),
        ("GET", "/schemas/ids/2", None, 40403),
        ("GET", "/schemas/ids/1?subject=t", None, {"schema": A}),
        ("GET", "/subjects/t/versions/1", None, version(1, A, ":.test:t")),
        ("GET", "/subjects/:.:s/versions/1", None, version(1, B)),
        ("PUT", "/contexts/.test/config", {"compatibility": "NONE"}, {"compatibility": "NONE"}),
        ("GET", "/config/:.test:", None, {"compatibilityLevel": "NONE"}),
        ("GET", "/config/:.test:s?defaultToGlobal=true", None, {"compatibilityLevel": "NONE"}),
        ("GET", "/config/s?defaultToGlobal=true", None, {"compatibilityLevel": "BACKWARD"}),
        ("PUT", "/mode/:.test:", {"mode": "READONLY"}, 200),
        ("POST", "/subjects/:.test:s/versions", body(B), 42205),
        ("POST", "/subjects/s/versions", body(record("b", "c=")), {"id": 2}),
        ("GET", "/contexts/a:b/subjects", None, 400),
    ],
    "aliases": [
        ("POST", "/subjects/orders-value/versions", body(A), {"id": 1}),
        ("PUT", "/config/old", {"alias": "orders-value"}, {"alias": "orders-value"}),
        ("GET", "/subjects/old/versions", None, [1]),
        ("GET", "/subjects/old/versions/1", None, version(1, A, "orders-value")),
        ("POST", "/subjects/old/versions", body(AB), {"id": 2}),
        ("GET", "/subjects", None, ["orders-value"]),
        ("GET", "/schemas/ids/1?subject=old", None, {"schema": A}),
        ("GET", "/config/old", None, {"alias": "orders-value"}),
        ("POST", "/compatibility/subjects/old/versions/latest", body('"int"'), {"is_compatible": False}),
        (
            "GET",
            "/schemas?latestOnly=true&aliases=true",
            None,
            [{**version(2, AB, "orders-value"), "aliases": ["old"]}],
        ),
    ],
    "metadata and rules are kept": [
        (
            "POST",
            "/subjects/s/versions",
            body(A, metadata={"properties": {"owner": "us", "n": 1}, "tags": {"x": ["b", "a"]}, "sensitive": []}),
            {
                "id": 1,
                "version": 1,
                "metadata": {"tags": {"x": ["a", "b"]}, "properties": {"n": "1", "owner": "us"}},
                "schema": A,
            },
        ),
        ("GET", "/subjects/s/metadata?key=owner&value=us", None, 200),
        ("GET", "/subjects/s/metadata?key=owner&value=them", None, 40403),
        ("POST", "/subjects/s", body(A), 200),
        (
            "POST",
            "/subjects/s/versions",
            {"ruleSet": {"domainRules": [{"name": "r", "type": "CEL", "mode": "WRITE", "expr": "true"}]}},
            200,
        ),
        (
            "GET",
            "/schemas/ids/2",
            None,
            {
                "metadata": {"tags": {"x": ["a", "b"]}, "properties": {"n": "1", "owner": "us"}},
                "ruleSet": {
                    "domainRules": [{"name": "r", "mode": "WRITE", "type": "CEL", "expr": "true", "disabled": False}]
                },
                "schema": A,
            },
        ),
        ("GET", "/schemas?ruleType=CEL", None, 200),
        ("POST", "/subjects/s/versions", body(A, ruleSet={"domainRules": [{"type": "CEL"}]}), 42210),
        ("POST", "/subjects/s/versions", body(A, ruleSet={"domainRules": [{"name": "1x", "type": "CEL"}]}), 42210),
        (
            "POST",
            "/subjects/s/versions",
            body(A, ruleSet={"migrationRules": [{"name": "x", "type": "C", "mode": "READ"}]}),
            42210,
        ),
        ("POST", "/subjects/s/versions", body(A, ruleSet=[]), 400),
        ("POST", "/subjects/s/versions", body(A, metadata={"properties": {"a": {}}}), 400),
    ],
    "bad bodies": [
        ("POST", "/subjects/s/versions", b"", 422),
        ("POST", "/subjects/s/versions", b"null", 422),
        ("POST", "/subjects/s/versions", b'{"schema": ', 400),
        ("POST", "/subjects/s/versions", b"[]", 400),
        ("POST", "/subjects/s/versions", b'{"schema": "\\ud800"}', 400),
        ("POST", "/subjects/s/versions", b"\xff", 400),
        ("POST", "/subjects/s/versions", b"[" * 100_000, 400),
        ("POST", "/subjects/s/versions", {}, {"error_code": 42201, "message": "Empty schema"}),
        ("POST", "/subjects/s/versions", body(""), 42201),
        ("POST", "/subjects/s/versions", body("nope"), 42201),
        ("POST", "/subjects/s/versions", body(A, schemaType="XML"), 42201),
        ("POST", "/subjects/s/versions", body(A, schemaType=["AVRO"]), 400),
        ("POST", "/subjects/s/versions", body(A, id="x"), 400),
        ("POST", "/subjects/s/versions", body(A, id=2**31), 400),
        ("POST", "/subjects/s/versions", body(A, references="x"), 400),
        ("POST", "/subjects/s/versions", body(A, version=5), 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "unknown": 1}, {"id": 1}),
        ("PUT", "/config", {"normalize": "perhaps"}, 400),
        ("PUT", "/mode", {"mode": {}}, 400),
    ],
    "names": [
        ("POST", "/subjects/a%2Fb%25c/versions", body(A), {"id": 1}),
        ("GET", "/subjects/a%2Fb%25c/versions/1", None, version(1, A, "a/b%c")),
        ("POST", "/subjects/%E8%AE%A2%E5%8D%95/versions", body(A), {"id": 1}),
        ("GET", "/subjects", None, ["a/b%c", "订单"]),
        ("POST", f"/subjects/{'x' * 1000}/versions", body(A), {"id": 1}),
        ("DELETE", f"/subjects/{'x' * 1000}", None, [1]),
        ("POST", "/subjects/__GLOBAL/versions", body(A), 42208),
        ("POST", "/subjects/__EMPTY/versions", body(A), 42208),
        ("POST", "/subjects/a%00b/versions", body(A), 42208),
        ("POST", "/subjects/:.x:/versions", body(A), 42208),
        ("GET", "/nowhere", None, NOT_FOUND),
        ("GET", "/a/b/c/d/e/f/g/h/i/j/k/l/m", None, NOT_FOUND),
        ("PUT", "/subjects", None, {"error_code": 405, "message": "HTTP 405 Method Not Allowed"}),
        ("GET", "/subjects/", None, ["a/b%c", "订单"]),
        ("GET", "/subjects/a%2Fb%25c/versions/", None, [1]),
    ],
    "guids": [
        ("POST", "/subjects/s/versions", body('"string"'), {"id": 1}),
        ("POST", "/subjects/:.x:s/versions", body('"int"'), {"id": 1}),
        ("POST", "/subjects/:.x:s/versions/", body('"int"'), {"id": 1}),
        ("POST", "/subjects/:.x:t/versions/", body('"string"'), {"id": 2}),
        ("GET", "/schemas/guids/c6b78b67-9c09-0866-d01d-6f9c49fbfe72", None, 40403),
        ("GET", "/schemas/guids/nonsense", None, 40403),
    ],
}


@pytest.mark.parametrize("talk", TALKS)
def test_talk(talk: str) -> None:
    async def main() -> None:
        node = Node()
        for method, target, sent, expected in TALKS[talk]:
            reply = await node.ask(method, target, sent)
            where = f"{method} {target}"
            if isinstance(expected, int) and expected >= 200:
                got = reply.body["error_code"] if expected >= 400 else reply.status
                assert got == expected, (where, reply)
                assert reply.status == (expected if expected < 1000 else expected // 100), (where, reply)
            else:
                assert reply.body == expected, (where, reply)
                code = expected.get("error_code", 200) if isinstance(expected, dict) else 200
                assert reply.status == (code if code < 1000 else code // 100), (where, reply)

    run(main())


def test_a_guid_finds_the_schema_in_every_context() -> None:
    async def main() -> None:
        node = Node()
        more = [(b"confluent-accept-unknown-properties", b"true")]
        first = await node.ask("POST", "/subjects/s/versions", body('"string"'), more)
        assert first.body.keys() == {"id", "version", "guid"}
        await node.register(":.x:pad", '"int"')
        await node.register(":.x:s", '"string"')
        guid = first.body["guid"]
        assert (await node.ask("GET", f"/schemas/guids/{guid}")).body == {"schema": '"string"'}
        ids = (await node.ask("GET", f"/schemas/guids/{guid}/ids")).body
        assert ids == [{"context": ".", "id": 1}, {"context": ".x", "id": 2}]
        found = (await node.ask("GET", "/schemas/ids/1", headers=more)).body
        assert found == {"subject": "s", "version": 1, "id": 1, "guid": guid, "schema": '"string"'}

    run(main())


def test_incompatibilities_are_reported_as_by_confluent() -> None:
    async def main() -> None:
        node = Node()
        await node.register("s", A)
        reply = await node.register("s", record("a", "c"))
        assert (reply.status, reply.code) == (409, 409)
        message = reply.body["message"]
        assert message.startswith(
            'Schema being registered is incompatible with an earlier schema for subject "s", details: [{errorType:'
        )
        assert message.endswith("{validateFields: 'false', compatibility: 'BACKWARD'}]")
        verbose = await node.ask(
            "POST", "/compatibility/subjects/s/versions/latest?verbose=true", body(record("a", "c"))
        )
        assert verbose.body["is_compatible"] is False
        assert verbose.body["messages"][-3] == "{oldSchemaVersion: 1}"
        assert verbose.body["messages"][-1] == "{validateFields: 'false', compatibility: 'BACKWARD'}"

    run(main())


def test_a_compatibility_group_is_compared_by_itself() -> None:
    async def main() -> None:
        node = Node()
        await node.ask("PUT", "/config/s", {"compatibilityGroup": "major"})
        one, two = ({"properties": {"major": number}} for number in ("1", "2"))
        assert (await node.register("s", A, metadata=one)).status == 200
        assert (await node.register("s", record("z"), metadata=one)).status == 409
        assert (await node.register("s", record("z"), metadata=two)).status == 200
        assert (await node.register("s", AB, metadata=one)).status == 200

    run(main())


def test_the_texts_alone() -> None:
    async def main() -> None:
        node = Node()
        await node.register("s", A)
        for target in ("/schemas/ids/1/schema", "/subjects/s/versions/1/schema", "/subjects/s/versions/latest/schema"):
            reply = await node.ask("GET", target)
            assert reply.body == {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}

    run(main())


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        (b"*/*", "application/vnd.schemaregistry.v1+json"),
        (b"application/json", "application/json"),
        (b"application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (b"application/json, application/vnd.schemaregistry.v1+json;q=0.5", "application/vnd.schemaregistry.v1+json"),
        (b"text/html, */*;q=0.1", "application/vnd.schemaregistry.v1+json"),
        (b"*/anything", "application/vnd.schemaregistry.v1+json"),
        (b"*", "application/vnd.schemaregistry.v1+json"),
        (b"application", "application/vnd.schemaregistry.v1+json"),
        (b"APPLICATION/JSON ; q=0.2", "application/json"),
        (b'application/json; charset="utf-8, utf-16"', "application/json"),
        (b", application/json,", "application/json"),
        (b"application/vnd.schemaregistry.v1+json;q=0, application/json", "application/json"),
    ],
)
def test_answers_have_the_content_type_that_is_asked_for(accept: bytes, answered: str) -> None:
    async def main() -> None:
        reply = await Node().ask("GET", "/subjects", headers=[(b"accept", accept)])
        assert (reply.status, reply.headers["content-type"]) == (200, answered)

    run(main())


REFUSED = [
    ("GET", [(b"accept", b"text/html")], 406),
    ("GET", [(b"accept", b"text/*")], 406),
    ("GET", [(b"accept", b"application/anything")], 406),
    ("GET", [(b"accept", b"*/*;q=0")], 406),
    ("GET", [(b"accept", b"application/json;q=2")], 400),
    ("GET", [(b"accept", b"application/json;q=x")], 400),
    ("GET", [(b"accept", b"application/")], 400),
    ("GET", [(b"accept", b"/")], 400),
    ("GET", [(b"accept", b"application/json text/html")], 400),
    ("GET", [(b"host", b"evil.example")], 403),
    ("POST", [(b"content-type", b"application/x-www-form-urlencoded")], 415),
    ("POST", [(b"content-type", b"text/plain")], 415),
    ("POST", [(b"origin", b"http://evil.example")], 403),
    ("POST", [(b"content-length", b"999999999")], 413),
]


@pytest.mark.parametrize(("method", "headers", "status"), REFUSED)
def test_what_no_client_sends_is_refused(method: str, headers: list[tuple[bytes, bytes]], status: int) -> None:
    async def main() -> None:
        node = Node()
        names = {name for name, _ in headers}
        ask = node.ask
        from tests.unit.registry import nodes  # noqa: PLC0415

        kept = nodes.JSON[:]
        nodes.JSON[:] = [item for item in kept if item[0] not in names]
        try:
            reply = await ask(method, "/subjects/s/versions", body(A) if method == "POST" else None, headers)
        finally:
            nodes.JSON[:] = kept
        assert (reply.status, reply.code) == (status, status)
        assert not node.log.written

    run(main())


def test_the_settings_of_a_node_have_an_effect() -> None:
    async def main() -> None:
        node = Node(default_level="FULL", has_mode_changes=False, group="mine")
        assert (await node.ask("GET", "/config")).body == {"compatibilityLevel": "FULL"}
        refused = {"error_code": 42205, "message": "Mode changes are not allowed"}
        assert (await node.ask("PUT", "/mode", {"mode": "READONLY"})).body == refused
        clusters = (await node.ask("GET", "/v1/metadata/id")).body["scope"]["clusters"]
        assert clusters["schema-registry-cluster"] == "mine"

    run(main())


def test_an_import_brings_what_was_good_enough_elsewhere() -> None:
    async def main() -> None:
        node = Node()
        old = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"one"}]}'
        assert (await node.register("s", old)).code == 42201
        await node.ask("PUT", "/mode/s", {"mode": "IMPORT"})
        assert (await node.register("s", old, id=5, version=2)).body == {"id": 5}
        await node.ask("DELETE", "/mode/s")
        assert (await node.register("s", old)).body == {"id": 5}
        assert (await node.ask("POST", "/subjects/s", body(old))).body["version"] == 2

    run(main())


def test_normalized_schemas_are_one() -> None:
    async def main() -> None:
        node = Node()
        one = '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"string"},"doc":"d"}],"aliases":["b"]}'
        other = '{"aliases":["b"],"fields":[{"doc":"d","type":"string","name":"a"}],"name":"R","type":"record"}'
        first = await node.ask("POST", "/subjects/s/versions?normalize=true", body(one))
        again = await node.ask("POST", "/subjects/s/versions?normalize=true", body(other))
        assert first.body == again.body == {"id": 1}
        await node.ask("PUT", "/config/s", {"normalize": True})
        assert (await node.ask("POST", "/subjects/s/versions", body(one))).body == {"id": 1}
        assert (await node.ask("POST", "/subjects/s", body(other))).body["version"] == 1

    run(main())


def test_a_follower_hands_changes_to_the_leader_as_they_came() -> None:
    class Follower:
        is_leader = False
        leader_url = "http://leader:8081"

    asked: list[tuple[RawRequest, str]] = []

    async def forward(request: RawRequest, leader: str) -> RawResponse:
        asked.append((request, leader))
        return RawResponse(409, [(b"content-type", b"application/json")], b'{"error_code":409,"message":"no"}')

    async def main() -> None:
        node = Node(leadership=Follower())
        node.app.forward = forward
        sent = json.dumps(body(A)).encode()
        reply = await node.ask("POST", "/contexts/.x/subjects/a%2Fb/versions?normalize=true", sent)
        assert (reply.status, reply.body) == (409, {"error_code": 409, "message": "no"})
        ((request, leader),) = asked
        assert leader == "http://leader:8081"
        assert (request.method, request.target) == ("POST", "/contexts/.x/subjects/a%2Fb/versions?normalize=true")
        assert request.body == sent
        assert (await node.ask("GET", "/subjects")).body == []
        assert (await node.ask("POST", "/compatibility/subjects/s/versions", body(A))).body == {"is_compatible": True}
        assert len(asked) == 1

    run(main())
