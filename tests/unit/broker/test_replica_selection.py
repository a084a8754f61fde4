"""Which replica a consumer is sent to (KIP-392)."""

from types import SimpleNamespace

import pytest

from ottla.broker.replicas.replica_selection import preferred_replica
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def image(racks=RACKS, listeners=("PLAINTEXT",)):
    endpoints = {name: Endpoint("host", 9092) for name in listeners}
    return MetadataImage(brokers={id_: BrokerImage(id_, endpoints, rack, 1) for id_, rack in racks.items()})


def partition(ends=None, in_sync=(1, 2, 3, 4), start=0):
    """Broker 1 leads; the others have come so far."""
    followers = [
        SimpleNamespace(broker_id=id_, end_offset=end, log_start_offset=start)
        for id_, end in (ends or {2: 10, 3: 10, 4: 10}).items()
    ]
    return SimpleNamespace(node_id=1, followers=followers, in_sync=in_sync)


@pytest.mark.parametrize(
    ("made", "offset", "rack", "expected"),
    [
        (partition(), 5, "b", 2),
        (partition({2: 5, 3: 9, 4: 10}), 5, "b", 3),  # the one that has more
        (partition({2: 4, 3: 4, 4: 10}), 5, "b", -1),  # they do not have it yet
        (partition(start=6), 5, "b", -1),  # they do not have it any more
        (partition(in_sync=(1, 4)), 5, "b", -1),
        (partition(), 5, "a", -1),  # the leader is there itself
        (partition(), 5, "elsewhere", -1),
        (partition(), 5, "c", 4),
    ],
)
def test_a_consumer_goes_to_a_replica_in_its_rack(made, offset, rack, expected):
    assert preferred_replica(made, offset, rack, image(), "PLAINTEXT") == expected


def test_a_replica_that_is_dead_or_not_on_the_consumers_listener_is_not_chosen():
    alive = {id_: rack for id_, rack in RACKS.items() if id_ != 4}
    assert preferred_replica(partition(), 5, "c", image(alive), "PLAINTEXT") == -1
    assert preferred_replica(partition(), 5, "c", image(), "SSL") == -1
