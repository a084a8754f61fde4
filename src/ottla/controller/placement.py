"""Where the replicas of new partitions go: random start, then round robin over the brokers that are alive.

Pure: the random numbers come in as arguments. The first replica of partition n is broker (start + n), so leaders are
spread evenly; followers are shifted by one more place each time the brokers have been gone through once, so that the
replicas of one broker's partitions are spread over all others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from ottla.base.errors import Error, KafkaError


def place_replicas(
    brokers: Sequence[int],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition. `brokers` are the ids that are alive, in any order."""
    check_replication_factor(len(brokers), replication_factor)
    ordered = sorted(brokers)
    shared: dict[tuple[int, int], tuple[int, ...]] = {}  # few different rows: thousands of partitions share them
    placed = []
    for index in range(first_partition, first_partition + partition_count):
        leader_place = (start + index) % len(ordered)
        follower_shift = shift + index // len(ordered)
        key = (leader_place, follower_shift % max(1, len(ordered) - 1))
        if key not in shared:
            shared[key] = one_row(ordered, leader_place, follower_shift, replication_factor)
        placed.append(shared[key])
    return placed


def check_replication_factor(broker_count: int, replication_factor: int) -> None:
    if replication_factor > broker_count:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {broker_count} "
            "broker(s) are registered or some brokers have all their log directories cordoned.",
        )


def check_manual_replicas(brokers: Container[int], replicas: Sequence[int], replication_factor: int | None) -> None:
    """Refuse replicas that somebody wrote by hand: unknown or repeated brokers, or not as many as before."""
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
