"""Whether ZooKeeper tells the same story as the brokers.  What it holds is read; the comparison is pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.cli.doctor.facts import Facts
from ottla.cli.doctor.findings import Finding, Severity, brokers_text, known, some
from ottla.cli.terminal import ToolError
from ottla.controller import tree

CONNECT_SECONDS_MAX = 10


class StoreFacts(NamedTuple):
    """What ZooKeeper holds: the brokers and the controller that are registered, and the leader of each partition."""

    brokers: frozenset[int]
    controller_id: int
    leaders: dict[TopicPartition, tuple[int, int]]  # leader and its epoch


def read_store(connect: str) -> StoreFacts:
    from kazoo.client import KazooClient  # noqa: PLC0415 (slow to import, and rarely needed)
    from kazoo.exceptions import KazooException, NoNodeError  # noqa: PLC0415
    from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415

    try:
        store = KazooClient(hosts=connect, timeout=CONNECT_SECONDS_MAX, read_only=True)
    except ValueError:
        raise ToolError(f"{connect!r} is not of the form host:port,host:port/chroot") from None
    try:
        store.start(timeout=CONNECT_SECONDS_MAX)
        brokers = frozenset(int(name) for name in store.get_children(tree.BROKER_IDS))
        leaders = {}
        for topic in store.get_children(tree.BROKER_TOPICS):
            for number in map(int, store.get_children(tree.partitions_path(topic))):
                path = tree.partition_state_path(topic, number)
                state = tree.decode_partition_state(path, store.get(path)[0])
                leaders[TopicPartition(topic, number)] = (state.leader, state.leader_epoch)
        try:
            controller_id = tree.decode_controller(store.get(tree.CONTROLLER)[0])
        except NoNodeError:
            controller_id = -1
    except (KazooException, KazooTimeoutError, tree.DamagedNodeError) as problem:
        raise ToolError(f"ZooKeeper at {connect} cannot be read: {problem!r}") from None
    finally:
        store.stop()
        store.close()
    return StoreFacts(brokers, controller_id, leaders)


def compare_store(facts: Facts, store: StoreFacts) -> Iterator[Finding]:
    """`facts` were asked before the store was read: a change in between is not held against anybody."""
    missing = sorted(set(facts.brokers) - store.brokers)
    if missing:
        what = f"told by the brokers, but not registered in ZooKeeper: {brokers_text(missing)}"
        yield known(Severity.PROBLEM, "F14", what)
    extra = sorted(store.brokers - set(facts.brokers))
    if extra:
        what = f"registered in ZooKeeper, but not told by the brokers: {brokers_text(extra)}"
        yield known(Severity.PROBLEM, "F14", what)
    if store.controller_id < 0:
        yield known(Severity.PROBLEM, "F14", "no controller is registered in ZooKeeper")
    told = {name: partition.leader for name, partition in facts.partitions()}
    later = {name: partition.leader for name, partition in facts.later.items()}
    differing = [
        str(name)
        for name, leader in told.items()
        if leader == later.get(name) and name in store.leaders and store.leaders[name][0] != leader
    ]
    if differing:
        what = f"ZooKeeper has other leaders than the brokers tell: {some(differing)}"
        yield known(Severity.PROBLEM, "F14", what)
    lost = sorted(str(name) for name in store.leaders if name not in told)
    if lost:
        yield known(Severity.PROBLEM, "F14", f"ZooKeeper has partitions that the brokers do not tell of: {some(lost)}")
