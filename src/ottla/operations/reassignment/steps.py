"""Moving replicas step by step, as both tools do it: what the cluster says, what is asked of it, what became of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.base.counting import counted
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError, refusal
from ottla.client.log_dirs import PlacedReplica, alter_replica_log_dirs, describe_log_dirs
from ottla.client.reassignments import Reassignment, alter_reassignments, list_reassignments
from ottla.operations.reassignment.plan import Plan, PlanError, check_plan
from ottla.operations.reassignment.throttles import set_throttles, throttles

FOLDER_RETRY_MS = 100


class Progress(Enum):
    """How far the move of one partition is."""

    DONE = "done"
    UNDER_WAY = "under way"
    NOT_ASKED = "not asked for"  # nothing moves, but the replicas are others than the plan says


class FolderState(NamedTuple):
    """Where a replica lies, and where it is on its way to; None: nowhere."""

    current: str | None
    future: str | None
    lag: int = 0


def find_topics(admin: Admin, names: Collection[str]) -> list[Topic]:
    """The topics of these names; KafkaError-like refusal for the first that is missing."""
    topics = {topic.name: topic for topic in admin.topics(sorted(names))} if names else {}
    for name in names:
        if name not in topics:
            raise refusal(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
    return [topics[name] for name in names]


def replicas_of(topics: Sequence[Topic]) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(topic.name, partition.number): partition.replicas
        for topic in topics
        for partition in topic.partitions
    }


def targeted(topics: Sequence[Topic], moves: Mapping[TopicPartition, Reassignment]) -> list[Topic]:
    """The topics as they will be when what is under way has ended: whoever comes stays, whoever goes counts no more."""
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


def current_rows(admin: Admin, plan: Plan) -> dict[TopicPartition, list[int]]:
    """Who holds the partitions of a plan now; each of them must exist."""
    rows = replicas_of(find_topics(admin, plan.topics))
    for partition in plan.replicas:
        if partition not in rows:
            raise refusal(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {partition}")
    return {partition: rows[partition] for partition in plan.replicas}


def check_brokers(admin: Admin, brokers: Collection[int]) -> None:
    check_known(brokers, admin.live_brokers())


def check_holders(admin: Admin, brokers: Collection[int]) -> None:
    """Each must be alive or hold something: a broker that is dead can be drained, too."""
    rows = replicas_of(admin.topics())
    check_known(brokers, {*admin.live_brokers(), *(broker for row in rows.values() for broker in row)})


def check_known(brokers: Collection[int], known: Collection[int]) -> None:
    for broker in sorted(brokers):
        if broker not in known:
            raise PlanError(f"Unknown broker id {broker}")


class Start(NamedTuple):
    """What there was before a plan was begun: moves under way, and who held its partitions."""

    under_way: dict[TopicPartition, Reassignment]
    now: dict[TopicPartition, list[int]]


def prepare(client: Client, plan: Plan, *, is_additional: bool = False) -> Start:
    """Refuse a plan that cannot be carried out now: PlanError, ClientError. Nothing is changed yet."""
    check_plan(plan)
    admin = Admin(client)
    under_way = list_reassignments(client)
    if under_way and not is_additional:
        raise PlanError(
            f"{counted(len(under_way), 'move', 'is')} under way (ottla reassign list): wait for the end, or give "
            "--additional"
        )
    now = current_rows(admin, plan)
    check_brokers(admin, plan.brokers - {broker for row in now.values() for broker in row})
    return Start(under_way, now)


def begin(
    client: Client, plan: Plan, start: Start, throttle: int | None, *, may_change_factor: bool = True
) -> dict[TopicPartition, RefusedError]:
    """Slow copies down first, then have the replicas moved; the answer is what was refused of it."""
    if throttle is not None:
        living = Admin(client).live_brokers()  # one that is gone copies nothing, and cannot be told either
        wanted = throttles(start.under_way, plan.replicas, start.now)
        wanted = wanted._replace(brokers=[broker for broker in wanted.brokers if broker in living])
        set_throttles(client, wanted, throttle)
    return alter_reassignments(client, plan.replicas, may_change_factor=may_change_factor)


def folder_states(client: Client, replicas: Collection[PlacedReplica]) -> dict[PlacedReplica, FolderState]:
    """Where these replicas lie; brokers that are not there are passed over."""
    living = set(Admin(client).live_brokers())
    found: dict[PlacedReplica, FolderState] = {}
    asked = sorted({replica.broker for replica in replicas} & living)
    for broker, folders in describe_log_dirs(client, asked).items():
        for folder in folders:
            for item in folder.replicas:
                replica = PlacedReplica(item.partition, broker)
                if replica not in replicas:
                    continue
                known = found.get(replica, FolderState(None, None))
                if item.is_future:
                    found[replica] = FolderState(known.current, folder.path, item.offset_lag)
                else:
                    found[replica] = FolderState(folder.path, known.future, known.lag)
    return {replica: found.get(replica, FolderState(None, None)) for replica in sorted(replicas)}


def folders_of(client: Client, rows: Mapping[TopicPartition, Sequence[int]]) -> dict[PlacedReplica, str]:
    replicas = {PlacedReplica(partition, broker) for partition, row in rows.items() for broker in row}
    states = folder_states(client, replicas)
    return {replica: state.current for replica, state in states.items() if state.current is not None}


def progress(
    plan: Plan, under_way: Mapping[TopicPartition, Reassignment], now: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, Progress]:
    found = {}
    for partition, row in plan.replicas.items():
        if partition in under_way:
            found[partition] = Progress.UNDER_WAY
        else:
            found[partition] = Progress.DONE if list(now.get(partition, ())) == row else Progress.NOT_ASKED
    return found


# ---- folders


def move_folders(
    client: Client, wanted: Mapping[PlacedReplica, str], timeout_ms: int, on_begun: Callable[[PlacedReplica], None]
) -> list[PlacedReplica]:
    """Have replicas put into other folders; those that could not be begun in time are the answer.

    A replica that has yet to come to its broker is asked for again and again: it is told when it is there.
    """
    deadline_ms = client.clock.monotonic_ms() + timeout_ms
    left = dict(wanted)
    while left:
        for replica, problem in alter_replica_log_dirs(client, left).items():
            if problem is None:
                on_begun(replica)
                del left[replica]
            elif problem.error is not Error.REPLICA_NOT_AVAILABLE:
                raise FolderError(replica, problem)
        if not left or client.clock.monotonic_ms() >= deadline_ms:
            break
        client.sleep(FOLDER_RETRY_MS / 1000)
    return list(left)


class FolderError(ClientError):
    """A folder that a replica cannot go to."""

    def __init__(self, replica: PlacedReplica, problem: RefusedError) -> None:
        super().__init__(f"Failed to alter dir for {replica}", problem.error)
        self.problem = problem
