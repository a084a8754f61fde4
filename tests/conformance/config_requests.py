"""Questions about settings and changes of them, for the tests of three APIs."""

import time
from typing import Any

from kafka.protocol.admin import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.conformance.peer import Peer

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, DYNAMIC_LOGGER = range(1, 7)
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
OK = (0, None)
SECONDS_MAX = 10


def describe(
    peer: Peer,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = True,
    documentation: bool = False,
) -> Any:
    request = DescribeConfigsRequest(
        resources=[(resource_type, name, keys)], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = peer.ask(request, version).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def entries(peer: Peer, resource_type: int, name: str, keys: list[str] | None = None, **how: Any) -> dict[str, Any]:
    result = describe(peer, resource_type, name, keys, **how)
    assert (result.error_code, result.error_message) == (0, "")
    return {entry.name: entry for entry in result.configs}


def synonyms_of(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(item.name, item.value, item.source) for item in entry.synonyms]


def change(peer: Peer, *resources: Any, validate_only: bool = False, version: int = 1) -> list[tuple[int, str | None]]:
    answer = peer.ask(IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only), version)
    return [(row.error_code, row.error_message) for row in answer.responses]


def replace(peer: Peer, *resources: Any, validate_only: bool = False, version: int = 2) -> list[tuple[int, str | None]]:
    answer = peer.ask(AlterConfigsRequest(resources=list(resources), validate_only=validate_only), version)
    return [(row.error_code, row.error_message) for row in answer.responses]


def wait_for(peer: Peer, resource_type: int, name: str, key: str, value: str | None, **how: Any) -> Any:
    """The entry once it has this value: Apache Kafka's brokers see a change a moment after it was answered."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        entry = entries(peer, resource_type, name, [key], **how).get(key)
        if (entry.value if entry else None) == value:
            return entry
        assert time.monotonic() < deadline, f"{key} is {entry and entry.value!r}, not {value!r}"
        time.sleep(0.02)
