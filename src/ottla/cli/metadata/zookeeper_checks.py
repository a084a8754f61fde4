"""Compares the state in ZooKeeper with the state that the brokers report. The comparison is pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.cli.metadata.tree import open_zookeeper
from ottla.cli.terminal import ToolError
from ottla.controller import tree
from ottla.controller.self_balancing.heal_state import JOURNAL_FORMAT, HealJournal
from ottla.controller.stores.store import Node, StoreError
from ottla.operations.doctor.cluster_facts import ClusterFacts
from ottla.operations.doctor.findings import Finding, Severity, brokers_text, case_finding, shorten_list


class ZooKeeperState(NamedTuple):
    """The state in ZooKeeper: registered brokers and controller, and the leader of each partition."""

    brokers: frozenset[int]
    controller_id: int
    leaders: dict[TopicPartition, tuple[int, int]]  # leader and its epoch
    healing: HealJournal | str = HealJournal()  # a string: why it cannot be read
    topics_to_delete: tuple[str, ...] = ()  # topics marked for deletion


def read_zookeeper_state(connect: str) -> ZooKeeperState:
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
            healing = read_healing(store.get(JOURNAL_FORMAT.path))
            marked = tuple(sorted(store.children(tree.DELETE_TOPICS)))
    except ValueError:
        raise ToolError(f"{connect!r} is not of the form host:port,host:port/chroot") from None
    except (StoreError, tree.DamagedNodeError) as problem:
        raise ToolError(f"ZooKeeper at {connect} cannot be read: {problem}") from None
    return ZooKeeperState(brokers, controller_id, leaders, healing, marked)


def read_healing(node: Node | None) -> HealJournal | str:
    try:
        return JOURNAL_FORMAT.decode(node.data) if node is not None else HealJournal()
    except tree.DamagedNodeError as damage:
        return str(damage)


def check_healing(journal: HealJournal | str) -> Iterator[Finding]:
    """Findings about self-healing: active moves, and the reasons why it waits."""
    if isinstance(journal, str):
        cure = "Restore the node. If nothing moves (ottla reassign list), delete it: the controller creates a new one."
        yield Finding(Severity.WARNING, "", f"healing is off: {journal}", "another program wrote the node", cure)
        return
    for reason in journal.waits:
        cure = "docs/operations.md, Healing, explains each reason; ottla.heal.* are the limits."
        yield Finding(
            Severity.WARNING, "", f"healing waits: {reason}", "the controller waits until that has changed", cure
        )
    if journal.moves:
        removed = sorted({broker for move in journal.moves for broker in move.removed})
        count = f"{len(journal.moves)} partition{'' if len(journal.moves) == 1 else 's'}"
        what = f"the controller copies {count} of {brokers_text(removed)} to other brokers (healing)"
        yield Finding(
            Severity.NOTE,
            "",
            what,
            "the broker, or one of its log directories, was offline for too long",
            "Nothing to do: wait.",
        )


def compare_with_brokers(facts: ClusterFacts, store: ZooKeeperState) -> Iterator[Finding]:
    """Compare both states. `facts` are older than the store: a change in between is not a finding."""
    yield from check_healing(store.healing)
    missing = sorted(set(facts.brokers) - store.brokers)
    if missing:
        what = f"reported by the brokers, but not registered in ZooKeeper: {brokers_text(missing)}"
        yield case_finding(Severity.PROBLEM, "F14", what)
    extra = sorted(store.brokers - set(facts.brokers))
    if extra:
        what = f"registered in ZooKeeper, but not reported by the brokers: {brokers_text(extra)}"
        yield case_finding(Severity.PROBLEM, "F14", what)
    if store.controller_id < 0:
        yield case_finding(Severity.PROBLEM, "F14", "no controller is registered in ZooKeeper")
    leaders = {name: partition.leader for name, partition in facts.partitions()}
    later = {name: partition.leader for name, partition in facts.partitions_later.items()}
    differing = [
        str(name)
        for name, leader in leaders.items()
        if leader == later.get(name) and name in store.leaders and store.leaders[name][0] != leader
    ]
    if differing:
        what = f"ZooKeeper has other leaders than the brokers report: {shorten_list(differing)}"
        yield case_finding(Severity.PROBLEM, "F14", what)
    lost = sorted(str(name) for name in store.leaders if name not in leaders)
    if lost:
        yield case_finding(
            Severity.PROBLEM, "F14", f"ZooKeeper has partitions that the brokers do not report: {shorten_list(lost)}"
        )
    disabled = any(configs.get("delete.topic.enable") == "false" for configs in facts.broker_configs.values())
    if store.topics_to_delete and disabled:
        yield Finding(
            Severity.WARNING,
            "",
            f"topics that are marked for deletion, and still there: {shorten_list(store.topics_to_delete)}",
            "a tool has marked them in ZooKeeper, and delete.topic.enable=false: the first controller with "
            "delete.topic.enable=true deletes them",
            f"to keep them, remove the mark: delete {tree.DELETE_TOPICS}/TOPIC in zookeeper-shell.sh",
        )
