"""delete.topic.enable=false: nothing is deleted, and the answer says so (looked up on Apache Kafka 4.3.1)."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DeleteTopicsRequest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch

INVALID_REQUEST, TOPIC_DELETION_DISABLED = 42, 73


@pytest.fixture
def peer_without_deletion(broker_factory: Callable[..., Any]) -> Any:
    broker = broker_factory(delete_topic_enable="false")
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("kept")
        assert peer.produce("kept", batch()).error_code == 0
        yield peer


def test_topics_cannot_be_deleted(peer_without_deletion: Peer) -> None:
    peer = peer_without_deletion
    for version in range(1, 6):
        answer = peer.ask(DeleteTopicsRequest(topic_names=["kept", "unknown"], timeout_ms=5000), version)
        expected = TOPIC_DELETION_DISABLED if version >= 3 else INVALID_REQUEST
        assert {row.name: row.error_code for row in answer.responses} == {"kept": expected, "unknown": expected}
    assert peer.delete_topics(["kept", "unknown"]) == dict.fromkeys(("kept", "unknown"), TOPIC_DELETION_DISABLED)
    assert "kept" in peer.topic_names()
    assert peer.produce("kept", batch()).base_offset == 1
