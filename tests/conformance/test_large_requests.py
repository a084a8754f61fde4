"""Requests that are legal and absurd: a broker answers them, and others hardly notice."""

import threading
import time
import uuid

import pytest
from tests.conformance.group_calls import GroupCalls, find_coordinator
from tests.conformance.peer import Peer
from tests.conformance.raw import Connection, api_versions_v0, array, i8, i16, i32, string

METADATA = 3
PATIENCE_SECONDS = 60.0
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
OTHERS_SECONDS_MAX = 0.5  # generous: a busy machine, and a broker that may run as plain Python


def others_wait_at_most(bootstrap: str, connection: Connection, body: bytes) -> tuple[bytes, float]:
    """Ask Metadata v4 with this body; the answer, and the longest that another client waited meanwhile."""
    answers: list[bytes] = []

    def ask() -> None:
        answers.append(connection.ask(METADATA, 4, body))

    asking = threading.Thread(target=ask)
    asking.start()
    longest = 0.0
    while asking.is_alive():
        began = time.monotonic()
        api_versions_v0(bootstrap)
        longest = max(longest, time.monotonic() - began)
    asking.join()
    return answers[0], longest


@pytest.mark.usefixtures("broker_stays_healthy")
def test_a_million_empty_topic_names_delay_no_other_client(bootstrap: str) -> None:
    body = i32(1_000_000) + i16(0) * 1_000_000 + i8(0)

    with Connection(bootstrap, PATIENCE_SECONDS) as connection:
        answer, longest = others_wait_at_most(bootstrap, connection, body)

    assert answer.endswith(i32(1) + i16(INVALID_TOPIC) + string("") + i8(0) + i32(0))
    assert longest < OTHERS_SECONDS_MAX


@pytest.mark.usefixtures("broker_stays_healthy")
def test_a_hundred_thousand_unknown_topics_are_all_answered(bootstrap: str) -> None:
    names = [f"{number:05x}" for number in range(100_000)]
    body = array([string(f"nobody-{name}") for name in names]) + i8(0)

    with Connection(bootstrap, PATIENCE_SECONDS) as connection:
        answer, longest = others_wait_at_most(bootstrap, connection, body)

    assert answer.count(i16(UNKNOWN_TOPIC_OR_PARTITION) + i16(12) + b"nobody-") == len(names)
    assert longest < OTHERS_SECONDS_MAX


def test_a_large_join_that_has_to_wait_is_answered(bootstrap: str) -> None:
    """Above 64 KiB a request is decoded by a worker; this one then waits for the first rebalance of its group."""
    with Peer(bootstrap) as peer:
        calls = GroupCalls(peer, f"large-{uuid.uuid4()}")
        find_coordinator(peer, calls.group)
        protocols = {"range": bytes(100_000)}
        member, generation = calls.stable_member(protocols=protocols)
        assert calls.sync(member, generation, {member: bytes(200_000)}).error_code == 0
        assert calls.heartbeat(member, generation) == 0
