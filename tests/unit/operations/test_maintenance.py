"""What a broker in maintenance goes on leading, and why."""

from __future__ import annotations

from uuid import UUID

from ottla.client.admin import Partition, Topic
from ottla.operations.maintenance import StillLed, still_led

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


def test_others_in_maintenance_are_told_from_others_that_are_not_in_sync() -> None:
    assert still_led(2, TOPICS, {2}) == StillLed(alone=1, beside_maintained=0, movable=2)
    assert still_led(2, TOPICS, {2, 3}) == StillLed(alone=1, beside_maintained=1, movable=1)
    left = still_led(2, TOPICS, {1, 2, 3})
    assert left == StillLed(alone=1, beside_maintained=2, movable=0)
    assert left.sentences() == [
        "It goes on leading 1 partition: no other replica is in sync.",
        "It goes on leading 2 partitions: the other replicas in sync are in maintenance, too.",
    ]


def test_a_broker_that_leads_nothing_says_nothing() -> None:
    assert still_led(3, TOPICS, {3}).sentences() == []
