"""A message goes to the partition of Kafka's default partitioner, and is never sent twice."""

from __future__ import annotations

import pytest
from tests.unit.operations.messages.cluster import TOPIC, Cluster

from ottla.base.errors import Error
from ottla.client.errors import ClientError
from ottla.operations.messages.producer import NewMessage, ProducedOffset, murmur2, produce


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_the_hash_is_that_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def write(cluster: Cluster, message: NewMessage) -> ProducedOffset:
    return produce(cluster.client(), TOPIC, message, now_ms=lambda: 5, choose=lambda numbers: numbers[-1])


def test_key_partition_or_any() -> None:
    cluster = Cluster(3)
    by_key = (murmur2(b"21") & 0x7FFFFFFF) % 3
    assert write(cluster, NewMessage(b"21", b"v")) == ProducedOffset(by_key, 0)
    assert write(cluster, NewMessage(b"21", None, partition=1)) == ProducedOffset(1, cluster.logs[1].end - 1)
    cluster.offline.add(2)
    assert write(cluster, NewMessage(None, b"v", [("h", None)])).partition == 1, "2 has no leader"
    with pytest.raises(ClientError, match="orders has no partition 3"):
        write(cluster, NewMessage(None, b"", partition=3))


def test_only_what_was_not_written_is_tried_again() -> None:
    cluster = Cluster()
    cluster.produce_errors = [Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_LEADER_OR_FOLLOWER]
    assert write(cluster, NewMessage(None, b"v")) == ProducedOffset(0, 0)
    for error in (Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        cluster.produce_errors = [error]
        with pytest.raises(ClientError, match="may have been written"):
            write(cluster, NewMessage(None, b"v"))
    cluster.produce_errors = [Error.MESSAGE_TOO_LARGE]
    with pytest.raises(ClientError) as caught:
        write(cluster, NewMessage(None, b"v"))
    assert caught.value.error is Error.MESSAGE_TOO_LARGE
    assert cluster.logs[0].end == 1
