"""Moving replicas: start, progress and folder moves, shared by all tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.text import format_count
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError, error_from_code
from ottla.client.log_dirs import LogDir, TopicPartitionReplica, alter_replica_log_dirs, describe_log_dirs
from ottla.client.reassignments import Reassignment, alter_reassignments, list_reassignments
from ottla.operations.reassignment.plan import Plan, PlanError, check_plan
from ottla.operations.reassignment.throttles import set_throttles, throttle_settings

FOLDER_RETRY_MS = 100


class ReassignmentState(Enum):
    """The state of one partition's reassignment."""

    DONE = "done"
    UNDER_WAY = "under way"
    NOT_ASKED = "not asked for"  # nothing moves, but the replicas differ from the plan


class LogDirState(NamedTuple):
    """The log directory of a replica, and the one it moves to; None: none."""

    current: str | None
    future: str | None
    lag: int = 0


def find_topics(admin: Admin, names: Collection[str]) -> list[Topic]:
    """The topics of these names; raises a refusal for the first one that is missing."""
    topics = {topic.name: topic for topic in admin.topics(sorted(names))} if names else {}
    for name in names:
        if name not in topics:
            raise error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
    return [topics[name] for name in names]


def replicas_of(topics: Sequence[Topic]) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(topic.name, partition.number): partition.replicas
        for topic in topics
        for partition in topic.partitions
    }


def with_target_replicas(topics: Sequence[Topic], moves: Mapping[TopicPartition, Reassignment]) -> list[Topic]:
    """The topics as they will be once all reassignments have completed."""
    return [
        topic._replace(
            partitions=[
                item._replace(replicas=moves[name].target) if name in moves else item
                for item in topic.partitions
                for name in [TopicPartition(topic.name, item.number)]
            ]
        )
        for topic in topics
    ]


def current_replicas(admin: Admin, plan: Plan) -> dict[TopicPartition, list[int]]:
    """The current replicas of the plan's partitions; each must exist."""
    rows = replicas_of(find_topics(admin, plan.topics))
    for partition in plan.replicas:
        if partition not in rows:
            raise error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {partition}")
    return {partition: rows[partition] for partition in plan.replicas}


def check_brokers(admin: Admin, brokers: Collection[int]) -> None:
    check_known(brokers, admin.live_brokers())


def check_known(brokers: Collection[int], known: Collection[int]) -> None:
    for broker in sorted(brokers):
        if broker not in known:
            raise PlanError(f"Unknown broker id {broker}")


class InitialState(NamedTuple):
    """The state before a plan: reassignments under way, and the current replicas of its partitions."""

    under_way: dict[TopicPartition, Reassignment]
    now: dict[TopicPartition, list[int]]


def prepare(client: Client, plan: Plan, *, is_additional: bool = False) -> InitialState:
    """Reject a plan that cannot be executed now: PlanError, ClientError. Changes nothing."""
    check_plan(plan)
    admin = Admin(client)
    under_way = list_reassignments(client)
    if under_way and not is_additional:
        raise PlanError(
            f"{format_count(len(under_way), 'move', 'is')} under way (ottla reassign list): wait for the end, or give "
            "--additional"
        )
    now = current_replicas(admin, plan)
    check_brokers(admin, plan.brokers - {broker for row in now.values() for broker in row})
    return InitialState(under_way, now)


def start_moves(
    client: Client, plan: Plan, start: InitialState, throttle: int | None, *, may_change_factor: bool = True
) -> dict[TopicPartition, BrokerError]:
    """Set the throttle, then start the moves; returns the refused partitions."""
    if throttle is not None:
        living = Admin(client).live_brokers()  # a dead broker copies nothing, and its settings cannot be changed
        wanted = throttle_settings(start.under_way, plan.replicas, start.now)
        wanted = wanted._replace(brokers=[broker for broker in wanted.brokers if broker in living])
        set_throttles(client, wanted, throttle)
    return alter_reassignments(client, plan.replicas, may_change_factor=may_change_factor)


def log_dir_states(
    client: Client, replicas: Collection[TopicPartitionReplica]
) -> dict[TopicPartitionReplica, LogDirState]:
    """The log directories of these replicas; dead brokers are skipped."""
    living = set(Admin(client).live_brokers())
    found: dict[TopicPartitionReplica, LogDirState] = {}
    asked = sorted({replica.broker for replica in replicas} & living)
    for broker, folders in describe_log_dirs(client, asked).items():
        for folder in folders:
            for item in folder.replicas:
                replica = TopicPartitionReplica(item.partition, broker)
                if replica not in replicas:
                    continue
                known = found.get(replica, LogDirState(None, None))
                if item.is_future:
                    found[replica] = LogDirState(known.current, folder.path, item.offset_lag)
                else:
                    found[replica] = LogDirState(folder.path, known.future, known.lag)
    return {replica: found.get(replica, LogDirState(None, None)) for replica in sorted(replicas)}


def current_log_dirs(client: Client, rows: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartitionReplica, str]:
    replicas = {TopicPartitionReplica(partition, broker) for partition, row in rows.items() for broker in row}
    states = log_dir_states(client, replicas)
    return {replica: state.current for replica, state in states.items() if state.current is not None}


def progress(
    plan: Plan, under_way: Mapping[TopicPartition, Reassignment], now: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, ReassignmentState]:
    found = {}
    for partition, row in plan.replicas.items():
        if partition in under_way:
            found[partition] = ReassignmentState.UNDER_WAY
        else:
            found[partition] = (
                ReassignmentState.DONE if list(now.get(partition, ())) == row else ReassignmentState.NOT_ASKED
            )
    return found


# ---- log directories


def move_log_dirs(
    client: Client,
    wanted: Mapping[TopicPartitionReplica, str],
    timeout_ms: int,
    on_started: Callable[[TopicPartitionReplica], None],
) -> list[TopicPartitionReplica]:
    """Move replicas to other log directories; returns those that could not be started in time.

    A replica that does not exist on its broker yet is requested repeatedly: the broker knows it once it is there.
    """
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    left = dict(wanted)
    while left:
        for replica, problem in alter_replica_log_dirs(client, left).items():
            if problem is None:
                on_started(replica)
                del left[replica]
            elif problem.error is not Error.REPLICA_NOT_AVAILABLE:
                raise LogDirError(replica, problem)
        if not left or client.clock.monotonic_ms() >= deadline_ms:
            break
        client.sleep(FOLDER_RETRY_MS / 1000)
    return list(left)


class LogDirError(ClientError):
    """The replica cannot be moved to this log directory."""

    def __init__(self, replica: TopicPartitionReplica, problem: BrokerError) -> None:
        super().__init__(f"Failed to alter dir for {replica}", problem.error)
        self.problem = problem


# ---- progress
class MoveProgress(NamedTuple):
    """One partition: bytes to copy to all new replicas together, and bytes copied."""

    total_bytes: int
    done_bytes: int

    @property
    def share(self) -> float:
        return min(self.done_bytes / self.total_bytes, 1.0) if self.total_bytes else 1.0


def move_progress(
    moves: Mapping[TopicPartition, Reassignment], sizes: Mapping[TopicPartitionReplica, int]
) -> dict[TopicPartition, MoveProgress]:
    """A new replica counts up to the size of the largest existing one."""
    found = {}
    for partition, move in moves.items():
        sources = [replica for replica in move.replicas if replica not in move.adding]
        size = max((sizes.get(TopicPartitionReplica(partition, broker), 0) for broker in sources), default=0)
        done = sum(min(size, sizes.get(TopicPartitionReplica(partition, broker), 0)) for broker in move.adding)
        found[partition] = MoveProgress(size * len(move.adding), done)
    return found


def bytes_to_copy(
    wanted: Mapping[TopicPartition, Sequence[int]],
    now: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartitionReplica, int],
) -> dict[TopicPartition, int | None]:
    """The bytes that a plan copies: the largest existing replica, for each new one; None if no size is known."""
    found: dict[TopicPartition, int | None] = {}
    for partition, row in wanted.items():
        new = set(row) - set(now[partition])
        known = [
            sizes[place] for broker in now[partition] if (place := TopicPartitionReplica(partition, broker)) in sizes
        ]
        found[partition] = len(new) * max(known) if known else None if new else 0
    return found


def replica_sizes(folders: Mapping[int, list[LogDir]]) -> dict[TopicPartitionReplica, int]:
    return {
        TopicPartitionReplica(replica.partition, broker): replica.size_bytes
        for broker, found in folders.items()
        for folder in found
        for replica in folder.replicas
        if not replica.is_future
    }


def describe_progress(
    client: Client, moves: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, MoveProgress]:
    """The progress of these moves, read from the brokers involved."""
    living = set(Admin(client).live_brokers())
    brokers = sorted({broker for move in moves.values() for broker in move.replicas} & living)
    return move_progress(moves, replica_sizes(describe_log_dirs(client, brokers, moves)))
