"""Mistakes that the simulation of the cluster must find: each is a small change to modules that the broker runs.

`python -m tests.simulation.cluster.planted_bugs [NAME]` plays seeds with that change until a promise is broken.
"""

from __future__ import annotations

from pathlib import Path

from tests.simulation.hunting import Change, PlantedBug, hunt_all, play

SEEDS_MAX = 3_000

PARTITION = "replication/partition.py"
LEADING = "replication/leader_state.py"
LOG = "storage/log.py"
ISR = "controller/decisions/isr_changes.py"
SETTLING = "controller/decisions/leader_election.py"
BROKER_EPOCHS = "controller/decisions/broker_epochs.py"

BUGS = [
    PlantedBug(
        "a new follower cuts its log to the high watermark",
        (
            Change(
                PARTITION,
                "        self._leader_state = None\n        if role.leader == self.node_id:\n",
                "        self._leader_state = None\n        if role.leader != self.node_id:\n"
                "            self.log.truncate_to(self.high_watermark)\n        if role.leader == self.node_id:\n",
            ),
        ),
    ),
    PlantedBug(
        "a replica joins the ISR before it has reached the start of the leader's epoch",
        (Change(LEADING, "max(high_watermark, self.epoch_start_offset)", "high_watermark"),),
    ),
    PlantedBug(
        "a smaller ISR counts before the controller has confirmed it",
        (Change(LEADING, "self.maximal_isr = frozenset(self.committed_isr) | ids", "self.maximal_isr = ids"),),
    ),
    PlantedBug(
        "a larger ISR counts only when the controller has confirmed it",
        (
            Change(
                LEADING,
                "self.maximal_isr = frozenset(self.committed_isr) | ids",
                "self.maximal_isr = frozenset(self.committed_isr)",
            ),
            Change(LEADING, " or self._is_caught_up(follower)", ""),
        ),
    ),
    PlantedBug(
        "the high watermark is the largest end of a log",
        (
            Change(
                LEADING,
                "            if follower.log_end_offset < lowest and (broker_id in self.maximal_isr or",
                "            if False and (broker_id in self.maximal_isr or",
            ),
        ),
    ),
    PlantedBug(
        "leader epochs are ignored",
        (
            Change(
                PARTITION, "        if known_epoch >= 0 and known_epoch != self.leader_epoch:\n", "        if False:\n"
            ),
            Change(
                PARTITION,
                "return position.leader_epoch == self.leader_epoch and position.offset",
                "return position.offset",
            ),
        ),
        first_seed=780,
    ),
    PlantedBug(
        "fetches of an earlier life of a broker count",
        (Change(LEADING, "if UNKNOWN < broker_epoch < follower.broker_epoch:", "if False:"),),
        "wipe",
        first_seed=900,
    ),
    PlantedBug(
        "an earlier life of a broker may be in the ISR",
        (Change(ISR, "if known is None or epoch not in (ANY_BROKER_EPOCH, known.epoch):", "if known is None:"),),
        "wipe",
    ),
    PlantedBug(
        "a proposal for an earlier state of the partition is taken",
        (
            Change(
                ISR,
                "    if change.partition_epoch < partition.partition_epoch:\n"
                "        return Error.INVALID_UPDATE_VERSION\n",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a proposal of an earlier leader is taken",
        (
            Change(
                ISR,
                "    if change.leader_epoch < partition.leader_epoch:\n        return Error.FENCED_LEADER_EPOCH\n"
                "    if broker != partition.leader:\n        return Error.INVALID_REQUEST\n"
                "    if change.partition_epoch < partition.partition_epoch:\n"
                "        return Error.INVALID_UPDATE_VERSION\n",
                "",
            ),
        ),
        first_seed=100,
    ),
    PlantedBug(
        "a controller writes without the check of its epoch",
        (Change("controller/decisions/decision.py", "    return (fence, *piece)\n", "    return tuple(piece)\n"),),
        first_seed=120,
    ),
    PlantedBug(
        "a leader is elected from outside of the ISR",
        (
            Change(
                SETTLING,
                "leader = rested if rested != NO_LEADER else first_electable(old.replicas, isr, present.alive)",
                "leader = first_electable(old.replicas, old.replicas, present.alive)",
            ),
        ),
    ),
    PlantedBug(
        "a restarted broker stays in the ISR though it may have lost records",
        (
            Change(
                SETTLING,
                "choose_leader_and_isr(without_unclean(old, restarted.unclean), available, rules)",
                "choose_leader_and_isr(old, available, rules)",
            ),
        ),
    ),
    PlantedBug(
        "a new controller believes that no broker has been restarted",
        (
            Change(
                "controller/decisions/broker_epochs.py",
                "    if node is None or not node.modified_id:\n",
                "    if True:\n",
            ),
        ),
    ),
    PlantedBug(
        "a wiped replica is eligible",
        (
            Change(
                BROKER_EPOCHS,
                "elr=tuple(broker for broker in old.elr if broker not in lost),",
                "elr=(*old.elr, *gone),",
            ),
        ),
        first_seed=900,
    ),
    PlantedBug(
        "a follower appends without cutting what its leader does not have",
        (
            Change(
                PARTITION,
                "        diverging = self._divergence(offset, last_fetched_epoch)\n",
                "        diverging = None\n",
            ),
        ),
    ),
    PlantedBug(
        "a follower forgets the producers",
        (
            Change(
                LOG,
                "        if header.producer_id >= 0:\n"
                "            self._apply_to_producer_state(records[place : place + length], header, last_offset)\n",
                "",
            ),
        ),
    ),
    PlantedBug(
        "records count before they are on the disk that flush.messages asks for",
        (
            Change(
                PARTITION,
                "        own_offset = self.log.recovery_point if self.is_flushing else self.log.end_offset\n",
                "        own_offset = self.log.end_offset\n",
            ),
        ),
        "flush",
    ),
    PlantedBug(
        "a broker in maintenance gives its leaderships to any live replica",
        (
            Change(
                SETTLING,
                "rested = first_electable(old.replicas, isr, present.electable - present.demoted)",
                "rested = first_electable(old.replicas, old.replicas, present.electable - present.demoted)",
            ),
        ),
        "maintenance",
    ),
    PlantedBug(
        "a broker in maintenance stops leading though no other replica can",
        (Change(SETTLING, "in present.demoted and rested != NO_LEADER", "in present.demoted"),),
        "maintenance",
    ),
    PlantedBug(
        "deltas of another controller are applied",
        (
            Change(
                "controller/cluster/feed.py",
                "if epoch != self.epoch or not 0 <= sequence",
                "if epoch != self.epoch and not 0 <= sequence",
            ),
            Change(
                "controller/cluster/deltas.py",
                "        if not delta.is_snapshot and (epoch, delta.sequence) != (place.epoch, place.sequence + 1):\n",
                "        if False:\n",
            ),
        ),
    ),
    PlantedBug(
        "too few replicas in sync commit records",
        (
            Change(
                PARTITION,
                "        if len(self.isr) < self.effective_min_isr:\n            return  # KIP-966",
                "        if False:\n            return  # KIP-966",
            ),
        ),
    ),
]


def hunt(bug: PlantedBug, folder: Path, seeds: int = SEEDS_MAX) -> str | None:
    """Plant the bug into a copy of the source and play; what was found, or None."""
    return play(bug, folder, "tests.simulation.cluster.play", str(seeds), str(bug.first_seed), bug.theme)


if __name__ == "__main__":
    hunt_all(BUGS, hunt)
