"""The replica assignment of new partitions: random start, then round robin over the brokers that are alive.

Pure: the random numbers are arguments. The first replica of partition n is broker (start + n), so leaders are spread
evenly. Followers are shifted by one more place after each pass over the brokers, so that the replicas of one broker's
partitions are spread over all others.

If every broker has a rack, the brokers are ordered so that racks alternate, and a partition gets a second replica in a
rack only when every rack has one. If a single broker has no rack, racks are ignored: otherwise the brokers that have
one would get too much.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ottla.base.errors import Error, KafkaError

Racks = Mapping[int, str | None]  # by broker


def place_replicas(
    brokers: Sequence[int],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
    racks: Racks | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition. `brokers` are the ids that are alive, in any order."""
    check_replication_factor(len(brokers), replication_factor)
    known = known_racks(brokers, racks or {})
    ordered = alternate_racks(brokers, known) if known else sorted(brokers)
    rack_count = len(set(known.values())) if known else 1
    shared: dict[tuple[int, int], tuple[int, ...]] = {}  # thousands of partitions share few different rows
    placed = []
    for index in range(first_partition, first_partition + partition_count):
        leader_place = (start + index) % len(ordered)
        follower_shift = (shift + index // len(ordered)) * rack_count % max(1, len(ordered) - 1)
        key = (leader_place, follower_shift)
        if key not in shared:
            if known:
                shared[key] = one_row_over_racks(ordered, known, leader_place, follower_shift, replication_factor)
            else:
                shared[key] = one_row(ordered, leader_place, follower_shift, replication_factor)
        placed.append(shared[key])
    return placed


def known_racks(brokers: Sequence[int], racks: Racks) -> dict[int, str]:
    """The rack of each broker; empty if one of them has none."""
    found = {broker: rack for broker in brokers if (rack := racks.get(broker)) is not None}
    return found if len(found) == len(brokers) else {}


def alternate_racks(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """The first broker of each rack, then the second of each, and so on: brokers a1 b1 c1 a2 b2 a3."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks[broker], []).append(broker)
    longest = max(map(len, by_rack.values()))
    return [by_rack[rack][n] for n in range(longest) for rack in sorted(by_rack) if n < len(by_rack[rack])]


def check_replication_factor(broker_count: int, replication_factor: int) -> None:
    if replication_factor > broker_count:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {broker_count} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )


def check_manual_replicas(brokers: Container[int], replicas: Sequence[int], replication_factor: int | None) -> None:
    """Refuse an invalid manual assignment: unknown or repeated brokers, or another number of replicas than before."""
    problem = manual_replicas_problem(brokers, replicas, replication_factor)
    if problem is not None:
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}")


def manual_replicas_problem(
    brokers: Container[int], replicas: Sequence[int], replication_factor: int | None
) -> str | None:
    if not replicas:
        return "an empty replica list."
    previous = None
    for broker in sorted(replicas):
        if broker not in brokers:
            return f"broker {broker}, but no such broker is registered."
        if broker == previous:
            return f"the broker {broker} more than once."
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        return (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)."
        )
    return None


def one_row(ordered: Sequence[int], leader_place: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    row = [ordered[leader_place]]
    for number in range(replication_factor - 1):
        step = 1 + (shift + number) % (len(ordered) - 1)
        row.append(ordered[(leader_place + step) % len(ordered)])
    return tuple(row)


def one_row_over_racks(
    ordered: Sequence[int], racks: Mapping[int, str], leader_place: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """As one_row, but skips brokers in racks that already have a replica, while another rack has none."""
    row = [ordered[leader_place]]
    used = {racks[row[0]]}
    rack_count = len(set(racks.values()))
    number = 0
    while len(row) < replication_factor:
        step = 1 + (shift + number) % (len(ordered) - 1)
        number += 1
        broker = ordered[(leader_place + step) % len(ordered)]
        if broker in row or (racks[broker] in used and len(used) < rack_count):
            continue
        row.append(broker)
        used.add(racks[broker])
    return tuple(row)
