"""Whether ZooKeeper tells the same story as the brokers.  What it holds is read; the comparison is pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.cli.metadata.tree import open_zookeeper
from ottla.cli.terminal import ToolError
from ottla.controller import tree
from ottla.controller.decisions.healing.journal import FORM, Journal
from ottla.controller.stores.store import Node, StoreError
from ottla.operations.doctor.facts import Facts
from ottla.operations.doctor.findings import Finding, Severity, brokers_text, known, some


class StoreFacts(NamedTuple):
    """What ZooKeeper holds: the brokers and the controller that are registered, and the leader of each partition."""

    brokers: frozenset[int]
    controller_id: int
    leaders: dict[TopicPartition, tuple[int, int]]  # leader and its epoch
    healing: Journal | str = Journal()  # or why it cannot be read
    marked: tuple[str, ...] = ()  # topics that wait for their deletion


def read_store(connect: str) -> StoreFacts:
    try:
        with open_zookeeper(connect) as store:
            brokers = frozenset(int(name) for name in store.children(tree.BROKER_IDS))
            leaders = {}
            for path, node in store.subtree(tree.BROKER_TOPICS).items():
                match path.split("/"):
                    case [_, _, _, topic, "partitions", number, "state"]:
                        state = tree.decode_partition_state(path, node.data)
                        leaders[TopicPartition(topic, int(number))] = (state.leader, state.leader_epoch)
            controller = store.get(tree.CONTROLLER)
            controller_id = tree.decode_controller(controller.data) if controller is not None else -1
            healing = read_healing(store.get(FORM.path))
            marked = tuple(sorted(store.children(tree.DELETE_TOPICS)))
    except ValueError:
        raise ToolError(f"{connect!r} is not of the form host:port,host:port/chroot") from None
    except (StoreError, tree.DamagedNodeError) as problem:
        raise ToolError(f"ZooKeeper at {connect} cannot be read: {problem}") from None
    return StoreFacts(brokers, controller_id, leaders, healing, marked)


def read_healing(node: Node | None) -> Journal | str:
    try:
        return FORM.decode(node.data) if node is not None else Journal()
    except tree.DamagedNodeError as damage:
        return str(damage)


def check_healing(journal: Journal | str) -> Iterator[Finding]:
    """What the controller does about brokers that are away, or why it does nothing."""
    if isinstance(journal, str):
        cure = "Restore the node. If nothing moves (ottla reassign list), delete it: the controller makes another."
        yield Finding(Severity.WARNING, "", f"healing is off: {journal}", "somebody else has written the node", cure)
        return
    for reason in journal.waits:
        cure = "docs/operations.md, Healing, says what each reason means; ottla.heal.* are the limits."
        yield Finding(
            Severity.WARNING, "", f"healing waits: {reason}", "the controller waits until that has changed", cure
        )
    if journal.moves:
        gone = sorted({broker for move in journal.moves for broker in move.gone})
        count = f"{len(journal.moves)} partition{'' if len(journal.moves) == 1 else 's'}"
        what = f"the controller has {count} of {brokers_text(gone)} copied anew (healing)"
        yield Finding(
            Severity.NOTE, "", what, "the broker, or a folder of it, was away for too long", "Nothing to do: wait."
        )


def compare_store(facts: Facts, store: StoreFacts) -> Iterator[Finding]:
    """`facts` were asked before the store was read: a change in between is not held against anybody."""
    yield from check_healing(store.healing)
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
    disabled = any(configs.get("delete.topic.enable") == "false" for configs in facts.broker_configs.values())
    if store.marked and disabled:
        yield Finding(
            Severity.WARNING,
            "",
            f"topics that are marked for deletion, and still there: {some(store.marked)}",
            "a tool has marked them in ZooKeeper, and delete.topic.enable=false: the first controller with "
            "delete.topic.enable=true deletes them",
            f"if they matter, take the mark away: delete {tree.DELETE_TOPICS}/TOPIC in zookeeper-shell.sh",
        )
