"""Mistakes that the simulation must find: each is a small change to a module that the broker runs.

`python -m tests.simulation.planted_bugs NAME` plays seeds with that change until a promise is broken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 3_000


class PlantedBug(NamedTuple):
    name: str
    scenario: str
    file: str  # below src/ottla
    right: str
    wrong: str


BUGS = [
    PlantedBug(
        "answers before records are committed",
        "classic_members",
        "coordination/shard.py",
        "            self._waiting.append((last_offset, self._now_ms(), decision))\n            self._release()\n",
        "            self._deliver(decision)\n",
    ),
    PlantedBug(
        "markers are sent before prepare is committed",
        "exactly_once",
        "transactions/machine.py",
        "        self._on_the_way[after.transactional_id] = after\n",
        "        self._on_the_way[after.transactional_id] = after\n"
        "        if after.state in PREPARED:\n            self._send_markers(after)\n",
    ),
    PlantedBug(
        "an old epoch may add partitions",
        "exactly_once",
        "transactions/machine.py",
        "        return Error.NONE if transaction.producer_epoch == who.epoch else Error.PRODUCER_FENCED\n",
        "        return Error.NONE\n",
    ),
    PlantedBug(
        "a new producer does not abort what is open",
        "exactly_once",
        "transactions/machine.py",
        "        if transaction.state is State.ONGOING:\n            decision = self._fence(transaction, now_ms)\n",
        "        if False:\n            decision = self._fence(transaction, now_ms)\n",
    ),
    PlantedBug(
        "markers are not sent again after a crash",
        "exactly_once",
        "transactions/machine.py",
        "            transaction.is_pending = False\n            if transaction.state in PREPARED:\n"
        "                self._send_markers(transaction)\n        return []\n",
        "            transaction.is_pending = False\n        return []\n",
    ),
    PlantedBug(
        "offsets of a transaction count at once",
        "exactly_once",
        "groups/machine.py",
        "        elif stamp is not None:\n            self.offsets.commit_pending",
        "        elif stamp is not None and False:\n            self.offsets.commit_pending",
    ),
    PlantedBug(
        "offsets of an aborted transaction count",
        "exactly_once",
        "groups/offsets.py",
        "            if is_commit:\n                self._commit_all(group, topics)\n",
        "            self._commit_all(group, topics)\n",
    ),
    PlantedBug(
        "pending offsets are not waited for",
        "exactly_once",
        "groups/offsets.py",
        "        return any(\n            partition in groups",
        "        return False and any(\n            partition in groups",
    ),
    PlantedBug(
        "transactions never time out",
        "exactly_once",
        "transactions/rules.py",
        "    return is_open and transaction.start_ms + transaction.timeout_ms < now_ms\n",
        "    return is_open and False\n",
    ),
    PlantedBug(
        "everybody gets the whole plan",
        "classic_members",
        "groups/classic.py",
        '            member.assignment = event.assignments.get(member.member_id, b"")\n',
        '            member.assignment = b"".join(event.assignments.values())\n',
    ),
    PlantedBug(
        "a partition is given away before it is given up",
        "consumer_members",
        "groups/reconciliation.py",
        "frozenset(each for each in partitions if is_free(topic_id, each))",
        "frozenset(partitions)",
    ),
    PlantedBug(
        "a member need not say that it gave up its partitions",
        "consumer_members",
        "groups/reconciliation.py",
        "    if to_revoke and _still_owns(owned, to_revoke):\n",
        "    if False:\n",
    ),
    PlantedBug(
        "a change that could not be written is taken for seen",
        "consumer_members",
        "groups/consumer_plan.py",
        "        if not self.records:",
        "        if True:",
    ),
    PlantedBug(
        "a new topic size goes unnoticed",
        "consumer_members",
        "groups/consumer_plan.py",
        "        if has_changed or metadata_hash != self._group.metadata_hash:\n",
        "        if has_changed:\n",
    ),
]


def hunt(bug: PlantedBug, folder: Path, seeds: int = SEEDS_MAX) -> str | None:
    """Plant the bug into a copy of the source and play; what was found, or None."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    path = source / "ottla" / bug.file
    text = path.read_text()
    assert text.count(bug.right) == 1, f"{bug.name}: {bug.file} has changed, adapt the planted bug"
    path.write_text(text.replace(bug.right, bug.wrong))
    environment = {**os.environ, "PYTHONPATH": f"{source}:{ROOT}", "OTTLA_PURE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.simulation.play", bug.scenario, str(seeds)]
    played = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    return None if played.returncode == 0 else (played.stdout + played.stderr).strip()


if __name__ == "__main__":
    import tempfile

    for each in BUGS:
        if len(sys.argv) < 2 or sys.argv[1] in each.name:
            with tempfile.TemporaryDirectory() as place:
                found = hunt(each, Path(place))
                first = (
                    "not found"
                    if found is None
                    else next(
                        (line for line in found.splitlines() if "AssertionError" in line or "Error" in line),
                        found[-200:],
                    )
                )
                print(f"{each.name}: {first}")
