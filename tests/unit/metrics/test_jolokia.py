"""Jolokia's questions and answers."""

import json
from typing import Any

import pytest

from ottla.metrics.beans import Bean, ObjectName, Source, gauge
from ottla.metrics.jolokia import BULK_MAX, BadRequestError, Request, answer, parse_get, parse_post

MEMORY = Bean(ObjectName("java.lang", (("type", "Memory"),)), {"HeapMemoryUsage": {"used": 5}, "Verbose": False})
SOURCES = [
    Source("java.lang", "Memory", lambda: iter((MEMORY,))),
    Source(
        "kafka.server",
        "ReplicaManager",
        lambda: iter(
            (
                gauge("kafka.server", "ReplicaManager", "LeaderCount", 3),
                None,
                gauge("kafka.server", "ReplicaManager", "PartitionCount", float("nan")),
            )
        ),
    ),
]


def ask(request: Request | list[Request]) -> Any:
    return json.loads("".join(answer(request, SOURCES, 1000.5)))


def test_reading_one_attribute() -> None:
    found = ask(parse_get("/read/kafka.server:type=ReplicaManager,name=LeaderCount/Value"))
    assert found == {
        "request": {
            "type": "read",
            "mbean": "kafka.server:type=ReplicaManager,name=LeaderCount",
            "attribute": "Value",
        },
        "value": 3,
        "timestamp": 1000,
        "status": 200,
    }


def test_reading_inside_an_attribute() -> None:
    assert ask(parse_get("/read/java.lang:type=Memory/HeapMemoryUsage/used"))["value"] == 5
    assert ask(parse_get("/read/java.lang:type=Memory/HeapMemoryUsage/none"))["status"] == 404


def test_reading_all_attributes_and_some() -> None:
    assert ask(Request("read", "java.lang:type=Memory"))["value"] == {"HeapMemoryUsage": {"used": 5}, "Verbose": False}
    assert ask(Request("read", "java.lang:type=Memory", ["Verbose", "Gone"]))["value"] == {"Verbose": False}
    assert ask(parse_get("/read/java.lang:type=Memory/Verbose,Gone"))["value"] == {"Verbose": False}


def test_a_pattern_reads_many_beans_and_nan_is_null() -> None:
    found = ask(Request("read", "kafka.server:type=ReplicaManager,name=*", "Value"))
    assert found["value"] == {
        "kafka.server:name=LeaderCount,type=ReplicaManager": {"Value": 3},
        "kafka.server:name=PartitionCount,type=ReplicaManager": {"Value": None},
    }


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (Request("read", "a:type=b"), 404, "javax.management.InstanceNotFoundException"),
        (Request("read", "a:type=*"), 404, "javax.management.InstanceNotFoundException"),
        (Request("read", "nonsense"), 400, "javax.management.MalformedObjectNameException"),
        (Request("read", "java.lang:type=Memory", "Gone"), 404, "javax.management.AttributeNotFoundException"),
        (Request("exec", "java.lang:type=Memory"), 403, "java.lang.SecurityException"),
        (Request("write", "java.lang:type=Memory"), 403, "java.lang.SecurityException"),
        (Request("list", path="none"), 404, "java.lang.IllegalArgumentException"),
    ],
)
def test_an_invalid_request_gets_a_reason(request_: Request, status: int, kind: str) -> None:
    found = ask(request_)
    assert (found["status"], found["error_type"]) == (status, kind)
    assert found["error"].startswith(f"{kind} : ")
    assert "value" not in found


def test_searching_and_listing() -> None:
    assert ask(parse_get("/search/*:type=Memory"))["value"] == ["java.lang:type=Memory"]
    assert ask(parse_get("/search/none:*"))["value"] == []
    whole = ask(parse_get("/list"))["value"]
    assert set(whole) == {"java.lang", "kafka.server"}
    assert set(whole["kafka.server"]) == {
        "name=LeaderCount,type=ReplicaManager",
        "name=PartitionCount,type=ReplicaManager",
    }
    assert ask(parse_get("/list/java.lang"))["value"] == whole["java.lang"]
    assert ask(parse_get("/list/java.lang/type=Memory"))["value"] == whole["java.lang"]["type=Memory"]


def test_the_version_is_the_answer_to_no_question() -> None:
    assert ask(parse_get(""))["value"]["protocol"] == ask(parse_get("/version"))["value"]["protocol"] == "7.2"


def test_slashes_in_names_are_escaped_with_an_exclamation_mark() -> None:
    assert parse_get('/read/kafka.log:logDirectory="!/data",type=LogManager').mbean.endswith('"/data",type=LogManager')


def test_a_bulk_request_is_answered_in_its_order() -> None:
    body = [{"type": "read", "mbean": "java.lang:type=Memory", "attribute": "Verbose"}, {"type": "VERSION"}]
    found = ask(parse_post(json.dumps(body).encode()))
    assert [item["status"] for item in found] == [200, 200]
    assert found[0]["value"] is False
    assert ask([]) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"7",
        b'"read"',
        b"[7]",
        b"{}",
        b'{"type":7}',
        b'{"type":"read","mbean":7}',
        b'{"type":"read","mbean":"a:b=c","attribute":{"x":1}}',
        b'{"type":"read","mbean":"a:b=c","path":[1]}',
        b'{"type":"read","x":NaN}',
        b"[" * 200_000,
        b'{"type":' + b"9" * 100_000 + b"}",
        b"\xff\xfe\x00",
        json.dumps([{"type": "version"}] * (BULK_MAX + 1)).encode(),
    ],
    ids=range(15),
)
def test_a_body_without_a_question_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        parse_post(body)
