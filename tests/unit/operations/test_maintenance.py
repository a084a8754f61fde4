"""The partitions that a broker in maintenance still leads, by reason."""

from __future__ import annotations

from uuid import UUID

from ottla.client.admin import Partition, Topic
from ottla.operations.maintenance import RemainingLeaders, remaining_leaders

TOPICS = [
    Topic(
        "orders",
        UUID(int=1),
        False,
        [
            Partition(0, 2, [2, 3], [2]),
            Partition(1, 2, [2, 3], [2, 3]),
            Partition(2, 2, [2, 1], [2, 1]),
            Partition(3, 1, [2, 1], [2, 1]),
        ],
    )
]


def test_replicas_in_maintenance_are_distinguished_from_replicas_out_of_sync() -> None:
    assert remaining_leaders(2, TOPICS, {2}) == RemainingLeaders(sole_in_sync=1, others_in_maintenance=0, movable=2)
    assert remaining_leaders(2, TOPICS, {2, 3}) == RemainingLeaders(sole_in_sync=1, others_in_maintenance=1, movable=1)
    left = remaining_leaders(2, TOPICS, {1, 2, 3})
    assert left == RemainingLeaders(sole_in_sync=1, others_in_maintenance=2, movable=0)
    assert left.messages() == [
        "It still leads 1 partition: no other replica is in sync.",
        "It still leads 2 partitions: the other replicas in sync are in maintenance, too.",
    ]


def test_a_broker_without_leaders_has_no_messages() -> None:
    assert remaining_leaders(3, TOPICS, {3}).messages() == []
