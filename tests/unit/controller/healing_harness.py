"""Healing without an event loop: its steps run on a tree in memory, and the test simulates the copies."""

from __future__ import annotations

from tests.unit.controller.controller_harness import ControllerHarness, broker

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.decisions.decision import config_operations
from ottla.controller.decisions.leader_election import decide_broker_changes
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.reassignment import (
    ReassignmentRequest,
    decide_completed_reassignments,
    decide_reassignments,
)
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import PartitionImage
from ottla.controller.self_balancing.heal_state import (
    JOURNAL_FORMAT,
    BrokerDisks,
    HealInputs,
    HealJournal,
    HealLimits,
    LogDir,
)
from ottla.controller.self_balancing.heal_steps import StartResult, decide_cleanup, decide_start
from ottla.controller.self_balancing.journals import PARENT, JournalNode
from ottla.controller.self_balancing.move_steps import CleanupResult

GIGABYTE = 1_000_000_000


class HealingHarness(ControllerHarness):
    """Brokers 1..n with disks of 100 GB; every partition has a gigabyte."""

    def __init__(self, brokers: int = 4, racks: str = "") -> None:
        super().__init__(brokers)
        self.rules = ElectionRules(min_insync_replicas=2)
        self.liveness = BrokerAvailability()
        self.limits = HealLimits()
        self.all = range(1, brokers + 1)
        self.racks = dict(zip(self.all, racks, strict=False))
        self.image = self.image.with_brokers({id_: self.registered(id_) for id_ in self.all})
        self.sizes: dict[tuple[int, TopicPartition], int] = {}
        self.folders = dict.fromkeys(self.all, (LogDir(100 * GIGABYTE, 90 * GIGABYTE),))
        self.silent: set[int] = set()
        self.lost: frozenset[int] = frozenset()
        self.failing: frozenset[int] = frozenset()
        self.in_maintenance: frozenset[int] = frozenset()
        self.refusals: frozenset[tuple[TopicPartition, int]] = frozenset()

    def registered(self, id_: int):  # type: ignore[no-untyped-def]
        return broker(id_)._replace(rack=self.racks.get(id_))

    # ---- what happens

    def topic(self, name: str, *rows: tuple[int, ...], size: int = GIGABYTE) -> None:
        self.create(NewTopic(name, assignments=tuple(enumerate(rows))))
        for index, row in enumerate(rows):
            for id_ in row:
                self.sizes[id_, TopicPartition(name, index)] = size

    def there(self, *brokers: int) -> None:
        """Set the live brokers."""
        seen = {id_: self.registered(id_) for id_ in brokers}
        decision = decide_broker_changes(self.image, seen, self.liveness, self.rules)
        self.commit(decision.operations)
        self.image = decision.image

    def lose(self, *brokers: int) -> None:
        """Set the lost brokers."""
        self.there(*(id_ for id_ in self.image.brokers if id_ not in brokers))
        self.lost |= frozenset(brokers)

    def back(self, *brokers: int) -> None:
        self.there(*sorted({*self.image.brokers, *brokers}))
        self.lost -= frozenset(brokers)

    def copied(self, name: str, index: int, *isr: int) -> None:
        """Set the ISR and complete finished reassignments."""
        topic = self.image.topics[name]
        changed = topic.partitions[index]._replace(isr=isr)
        rows = (*topic.partitions[:index], changed, *topic.partitions[index + 1 :])
        self.image = self.image.with_topics([topic._replace(partitions=rows)])
        self.image = decide_completed_reassignments(self.image, [name], self.liveness, self.rules).image

    def operator(self, name: str, index: int, row: tuple[int, ...] | None) -> None:
        wish = ReassignmentRequest(TopicPartition(name, index), row)
        self.image = decide_reassignments(self.image, [wish], self.liveness, self.rules).image

    # ---- what healing does

    @property
    def node(self) -> JournalNode[HealJournal]:
        return JOURNAL_FORMAT.read(self.tree.get(JOURNAL_FORMAT.path), has_parent=self.tree.get(PARENT) is not None)

    @property
    def journal(self) -> HealJournal:
        return self.node.journal

    def situation(self) -> HealInputs:
        away = frozenset(self.all) - self.image.brokers.keys()
        sizes: dict[int, dict[TopicPartition, int]] = {}
        for (holder, name), size in self.sizes.items():
            sizes.setdefault(holder, {})[name] = size
        disks = {
            id_: BrokerDisks(self.folders[id_], sizes.get(id_, {}))
            for id_ in self.image.brokers
            if id_ not in self.silent
        }
        return HealInputs(
            self.limits,
            self.liveness,
            self.rules,
            away,
            self.lost,
            self.failing,
            self.in_maintenance,
            {**self.racks},
            disks,
            self.refusals,
        )

    def begin(self) -> StartResult:
        decision = decide_start(self.image, self.node, self.situation())
        self.commit(decision.operations)
        self.image = decision.image
        assert decision.reply.journal == self.journal or not decision.operations
        return decision.reply

    def tidy(self) -> CleanupResult[HealJournal]:
        decision = decide_cleanup(self.image, self.node, self.situation())
        self.commit(decision.operations)
        self.image = decision.image
        return decision.reply

    def commit_configs(self) -> None:
        """Write the settings of the image to the tree."""
        for broker_id, config in self.image.broker_configs.items():
            self.tree.multi(config_operations(tree.BROKER_CONFIG, broker_id, config, exists=not broker_id))

    def commit(self, operations) -> None:  # type: ignore[no-untyped-def]
        if operations:
            self.tree.multi(operations)

    # ---- what can be seen

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def moving(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """The added and removed brokers by partition."""
        return {
            f"{topic.name}-{index}": (each.adding_replicas, each.removing_replicas)
            for topic in self.image.topics.values()
            for index, each in enumerate(topic.partitions)
            if each.adding_replicas or each.removing_replicas
        }
