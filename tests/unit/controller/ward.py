"""Healing without a loop: its steps run against a real tree in memory, and the copies are made by the test."""

from __future__ import annotations

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.decisions.healing.journal import FORM, Journal
from ottla.controller.decisions.healing.situation import Disks, Folder, Limits, Situation
from ottla.controller.decisions.healing.steps import Begun, Tidied, decide_begin, decide_tidy
from ottla.controller.decisions.journals import PARENT, JournalNode
from ottla.controller.decisions.leader_election import decide_brokers
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import NewTopic, config_operations
from ottla.controller.decisions.reassignment import Wish, decide_next_steps, decide_reassignments
from ottla.controller.image import PartitionImage
from unit.controller.stand import Stand, broker

GIGABYTE = 1_000_000_000


class Ward(Stand):
    """Brokers 1..n with disks of 100 GB; every partition has a gigabyte."""

    def __init__(self, brokers: int = 4, racks: str = "") -> None:
        super().__init__(brokers)
        self.rules = Rules(min_insync_replicas=2)
        self.liveness = Liveness()
        self.limits = Limits()
        self.all = range(1, brokers + 1)
        self.racks = dict(zip(self.all, racks, strict=False))
        self.image = self.image.with_brokers({id_: self.registered(id_) for id_ in self.all})
        self.sizes: dict[tuple[int, TopicPartition], int] = {}
        self.folders = dict.fromkeys(self.all, (Folder(100 * GIGABYTE, 90 * GIGABYTE),))
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
        """These are there, and nobody else."""
        seen = {id_: self.registered(id_) for id_ in brokers}
        decision = decide_brokers(self.image, seen, self.liveness, self.rules)
        self.commit(decision.operations)
        self.image = decision.image

    def lose(self, *brokers: int) -> None:
        """They have been away for long enough."""
        self.there(*(id_ for id_ in self.image.brokers if id_ not in brokers))
        self.lost |= frozenset(brokers)

    def back(self, *brokers: int) -> None:
        self.there(*sorted({*self.image.brokers, *brokers}))
        self.lost -= frozenset(brokers)

    def copied(self, name: str, index: int, *isr: int) -> None:
        """The leader has taken these into the ISR; a move that can end ends."""
        topic = self.image.topics[name]
        changed = topic.partitions[index]._replace(isr=isr)
        rows = (*topic.partitions[:index], changed, *topic.partitions[index + 1 :])
        self.image = self.image.with_topics([topic._replace(partitions=rows)])
        self.image = decide_next_steps(self.image, [name], self.liveness, self.rules).image

    def operator(self, name: str, index: int, row: tuple[int, ...] | None) -> None:
        wish = Wish(TopicPartition(name, index), row)
        self.image = decide_reassignments(self.image, [wish], self.liveness, self.rules).image

    # ---- what healing does

    @property
    def node(self) -> JournalNode[Journal]:
        return FORM.read(self.tree.get(FORM.path), has_parent=self.tree.get(PARENT) is not None)

    @property
    def journal(self) -> Journal:
        return self.node.journal

    def situation(self) -> Situation:
        away = frozenset(self.all) - self.image.brokers.keys()
        sizes: dict[int, dict[TopicPartition, int]] = {}
        for (holder, name), size in self.sizes.items():
            sizes.setdefault(holder, {})[name] = size
        disks = {
            id_: Disks(self.folders[id_], sizes.get(id_, {})) for id_ in self.image.brokers if id_ not in self.silent
        }
        return Situation(
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

    def begin(self) -> Begun:
        decision = decide_begin(self.image, self.node, self.situation())
        self.commit(decision.operations)
        self.image = decision.image
        assert decision.reply.journal == self.journal or not decision.operations
        return decision.reply

    def tidy(self) -> Tidied:
        decision = decide_tidy(self.image, self.node, self.situation())
        self.commit(decision.operations)
        self.image = decision.image
        return decision.reply

    def commit_configs(self) -> None:
        """What the image says about settings, in the tree."""
        for broker_id, config in self.image.broker_configs.items():
            self.tree.multi(config_operations(tree.BROKER_CONFIG, broker_id, config, exists=not broker_id))

    def commit(self, operations) -> None:  # type: ignore[no-untyped-def]
        if operations:
            self.tree.multi(operations)

    # ---- what can be seen

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def moving(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """By partition: who gets it, who loses it."""
        return {
            f"{topic.name}-{index}": (each.adding_replicas, each.removing_replicas)
            for topic in self.image.topics.values()
            for index, each in enumerate(topic.partitions)
            if each.adding_replicas or each.removing_replicas
        }
