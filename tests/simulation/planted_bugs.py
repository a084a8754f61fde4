"""Mistakes that the simulation must find: each is a small change to a module that the broker runs.

`python -m tests.simulation.planted_bugs NAME` plays seeds with that change until a promise is broken.
"""

from __future__ import annotations

from pathlib import Path

from tests.simulation.hunting import Change, PlantedBug, hunt_all, play

SEEDS_MAX = 3_000


def in_one_place(name: str, scenario: str, file: str, right: str, wrong: str) -> PlantedBug:
    return PlantedBug(name, (Change(file, right, wrong),), scenario)


BUGS = [
    in_one_place(
        "answers before records are committed",
        "classic_members",
        "coordination/shard.py",
        "            self._waiting.append((offset, now_ms, decision))\n        self._apply(decisions, goes_on)\n",
        "        self._apply(decisions, goes_on)\n"
        "        for decision in decisions:\n            self._complete(decision)\n",
    ),
    in_one_place(
        "markers are sent before prepare is committed",
        "exactly_once",
        "transactions/transaction_coordinator.py",
        "        self._in_flight[after.transactional_id] = after\n",
        "        self._in_flight[after.transactional_id] = after\n"
        "        if after.state in PREPARED_STATES:\n            self._send_markers(after)\n",
    ),
    in_one_place(
        "an old epoch may add partitions",
        "exactly_once",
        "transactions/transaction_coordinator.py",
        "        return Error.NONE if transaction.producer_epoch == producer.epoch else Error.PRODUCER_FENCED\n",
        "        return Error.NONE\n",
    ),
    in_one_place(
        "a new producer does not abort what is open",
        "exactly_once",
        "transactions/transaction_coordinator.py",
        "        if transaction.state is TransactionState.ONGOING:\n"
        "            decision = self._fence(transaction, now_ms)\n",
        "        if False:\n            decision = self._fence(transaction, now_ms)\n",
    ),
    in_one_place(
        "markers are not sent again after a crash",
        "exactly_once",
        "transactions/transaction_coordinator.py",
        "            transaction.has_pending_transition = False\n            if transaction.state in PREPARED_STATES:\n"
        "                self._send_markers(transaction)\n        return []\n",
        "            transaction.has_pending_transition = False\n        return []\n",
    ),
    in_one_place(
        "offsets of a transaction count at once",
        "exactly_once",
        "groups/group_coordinator.py",
        "        if stamp is not None:\n            self.offsets.commit_pending",
        "        if stamp is not None and False:\n            self.offsets.commit_pending",
    ),
    in_one_place(
        "offsets of an aborted transaction count",
        "exactly_once",
        "groups/offsets.py",
        "            if is_commit:\n                self._promote_pending(group, topics)\n",
        "            self._promote_pending(group, topics)\n",
    ),
    in_one_place(
        "pending offsets are not waited for",
        "exactly_once",
        "groups/offsets.py",
        "        return any(\n            partition in groups",
        "        return False and any(\n            partition in groups",
    ),
    in_one_place(
        "transactions never time out",
        "exactly_once",
        "transactions/transaction_coordinator.py",
        "    return is_open and started_ms + transaction.txn_timeout_ms < now_ms\n",
        "    return is_open and False\n",
    ),
    in_one_place(
        "every member gets the whole plan",
        "classic_members",
        "groups/classic_rebalance.py",
        '            member.assignment = event.assignments.get(member.member_id, b"")\n',
        '            member.assignment = b"".join(event.assignments.values())\n',
    ),
    in_one_place(
        "a partition is given away before it is given up",
        "consumer_members",
        "groups/reconciliation.py",
        "frozenset(each for each in partitions if is_free(topic_id, each))",
        "frozenset(partitions)",
    ),
    in_one_place(
        "a member need not say that it gave up its partitions",
        "consumer_members",
        "groups/reconciliation.py",
        "    if to_revoke and _owns_revoked_partitions(owned, to_revoke):\n",
        "    if False:\n",
    ),
    in_one_place(
        "a change that could not be written is taken for seen",
        "consumer_members",
        "groups/consumer_group_update.py",
        "        if not self.records:",
        "        if True:",
    ),
    in_one_place(
        "a new topic size goes unnoticed",
        "consumer_members",
        "groups/consumer_group_update.py",
        "        if self._has_subscription_changed or metadata_hash != self._group.metadata_hash:\n",
        "        if self._has_subscription_changed:\n",
    ),
]


def hunt(bug: PlantedBug, folder: Path, seeds: int = SEEDS_MAX) -> str | None:
    """Plant the bug into a copy of the source and play; what was found, or None."""
    return play(bug, folder, "tests.simulation.play", bug.theme, str(seeds))


if __name__ == "__main__":
    hunt_all(BUGS, hunt)
