"""`ottla cluster balance|add|remove` beside somebody who has the same idea on another machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerRoom, PartitionLoad
from ottla.cli.cluster import moving
from ottla.cli.cluster.moving import Wish, run_moves
from ottla.operations.reassignment.facts import ClusterFacts
from ottla.operations.reassignment.plan import PlanError

NAME = TopicPartition("orders", 0)


def test_who_begins_while_we_measure_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    brokers = {number: BrokerRoom() for number in (1, 2)}
    facts = ClusterFacts("id", [], [PartitionLoad(NAME, (1,), 5)], brokers, {}, [], [])
    seen: list[dict[TopicPartition, Any]] = [{}, {TopicPartition("theirs", 3): None}]
    monkeypatch.setattr(moving, "describe_cluster", lambda _: SimpleNamespace(cluster_id="id"))
    monkeypatch.setattr(moving, "gather", lambda *_: facts)
    monkeypatch.setattr(moving, "foreign_moves", lambda *_: seen.pop(0))
    monkeypatch.setattr(moving, "carry_out", lambda *_: pytest.fail("nothing may be begun"))
    options: Any = SimpleNamespace(
        measure=3.0, output=None, dry_run=False, disk_mark=85, cancel=False, rollback=False, state=str(tmp_path)
    )
    vars(options).update(no_throttle=False, throttle=1, at_once=5, wait=True)
    client: Any = None
    with pytest.raises(PlanError, match="1 move is under way that this command has not begun"):
        run_moves(client, options, "balance", lambda *_: Wish({NAME: [2]}))
    assert not list(tmp_path.rglob("*.json")), "nothing is left that a later call would go on with"
