"""Conditions of alert rules, one case each."""

import json
import os
import socket
from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.monitor.alerts.alert_manager import evaluate_pipeline_rule
from ottla.monitor.alerts.alert_states import Condition, Rule
from ottla.monitor.alerts.conditions import ClusterView, evaluate_rule
from ottla.monitor.lag_evaluation import GroupVerdict, PartitionVerdict, Status
from ottla.monitor.offset_rings import RecentEndHistory
from ottla.monitor.offset_store import ClusterFacts, LogDirFacts, PartitionFacts
from ottla.operations.pipeline_runs.statuses import STATUS_BYTES_MAX

NOW_MS = 1_700_000_000_000
GIB = 2**30


def verdict(group: str, status: Status, lag: int = 0, lag_ms: int | None = None) -> GroupVerdict:
    worst = {Status.ERR: Status.STOP}.get(status, status)
    partition = PartitionVerdict("orders", 0, "", "", Status.OK, None, None, lag, 1.0, lag_ms, ottla_status=worst)
    return GroupVerdict("c", group, Status.OK, 1.0, (partition,), partition, lag, NOW_MS, ottla_status=status)


def facts(*partitions: PartitionFacts, controller: int = 1) -> ClusterFacts:
    topics = {item.topic: UUID(int=1) for item in partitions}
    return ClusterFacts("id", controller, {1: "a:1", 2: "b:2"}, topics, partitions)


def partition(number: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionFacts:
    return PartitionFacts("orders", number, leader, replicas, isr)


HEALTHY = partition(0, 1, (1, 2), (1, 2))
VIEW = ClusterView(facts(HEALTHY), False, True, "", {}, {}, (), {}, {})


@pytest.mark.parametrize("kind", [kind for kind in Condition if kind is not Condition.PIPELINE])
def test_a_healthy_cluster_gives_no_reason(kind: Condition) -> None:
    view = VIEW._replace(verdicts={"g": verdict("g", Status.OK)}, min_isr={"orders": 2})
    assert evaluate_rule(Rule("r", kind), view, NOW_MS) == {}


@pytest.mark.parametrize(
    "kind", [kind for kind in Condition if kind not in (Condition.PIPELINE, Condition.BROKER_GONE)]
)
def test_an_unreachable_cluster_yields_no_findings(kind: Condition) -> None:
    assert evaluate_rule(Rule("r", kind), VIEW._replace(is_stale=True), NOW_MS) is None
    assert evaluate_rule(Rule("r", kind), VIEW._replace(facts=None), NOW_MS) is None


def test_a_cluster_that_does_not_respond_is_a_finding() -> None:
    view = VIEW._replace(is_stale=True, problem="refused")
    assert evaluate_rule(Rule("r", Condition.BROKER_GONE), view, NOW_MS) == {"cluster": "no broker answers: refused"}


def test_groups_have_no_findings_until_old_commits_are_read() -> None:
    view = VIEW._replace(is_ready=False, verdicts={"g": verdict("g", Status.ERR)})
    assert evaluate_rule(Rule("r", Condition.VERDICT), view, NOW_MS) is None


def test_verdicts() -> None:
    verdicts = {
        "billing": verdict("billing", Status.ERR, 7),
        "slow": verdict("slow", Status.WARN, 3),
        "other": verdict("other", Status.ERR),
    }
    view = VIEW._replace(verdicts=verdicts)
    found = evaluate_rule(Rule("r", Condition.VERDICT, group="bill*"), view, NOW_MS)
    assert found == {"group billing": "ERR, 7 records behind: orders-0 STOP"}
    both = evaluate_rule(Rule("r", Condition.VERDICT, statuses=("WARN", "ERR")), view, NOW_MS)
    assert both is not None
    assert set(both) == {"group billing", "group slow", "group other"}


def test_lag_in_records_and_in_time() -> None:
    view = VIEW._replace(verdicts={"g": verdict("g", Status.OK, 1_001, 61_000), "h": verdict("h", Status.OK, 1_000)})
    found = evaluate_rule(Rule("r", Condition.LAG, above=1_000), view, NOW_MS)
    assert found == {"group g": "1001 records behind, more than 1000"}
    assert evaluate_rule(Rule("r", Condition.LAG_SECONDS, above=60), view, NOW_MS) == {
        "group g": "61 s behind, more than 60 s"
    }


def test_partitions_are_one_finding_with_a_few_names() -> None:
    items = [partition(number, -1, (1, 2), ()) for number in range(8)]
    view = VIEW._replace(facts=facts(*items))
    names = "orders-0, orders-1, orders-2, orders-3, orders-4 and 3 more"
    assert evaluate_rule(Rule("r", Condition.LEADERLESS), view, NOW_MS) == {
        "partitions": f"8 partitions without a leader: {names}"
    }
    assert evaluate_rule(Rule("r", Condition.LEADERLESS, topic="x*"), view, NOW_MS) == {}


def test_a_leader_that_is_not_there_is_none() -> None:
    view = VIEW._replace(facts=facts(partition(0, 9, (9,), (9,))))
    assert evaluate_rule(Rule("r", Condition.LEADERLESS), view, NOW_MS) == {
        "partitions": "1 partition without a leader: orders-0"
    }


def test_replicas_that_are_behind() -> None:
    view = VIEW._replace(facts=facts(HEALTHY, partition(1, 1, (1, 2), (1,))), min_isr={"orders": 2})
    assert evaluate_rule(Rule("r", Condition.UNDER_REPLICATED), view, NOW_MS) == {
        "partitions": "1 partition under-replicated: orders-1"
    }
    found = evaluate_rule(Rule("r", Condition.UNDER_MIN_ISR), view, NOW_MS)
    assert found is not None
    assert found["partitions"].endswith("min.insync.replicas: orders-1")
    assert evaluate_rule(Rule("r", Condition.UNDER_MIN_ISR), view._replace(min_isr={}), NOW_MS) == {}


def test_brokers_that_are_missed() -> None:
    view = VIEW._replace(
        facts=facts(partition(0, 1, (1, 3), (1,))),
        brokers_seen_ms={1: NOW_MS, 4: NOW_MS - 60_000, 5: NOW_MS - 3_600_000},
        brokers_wanted=[6],
    )
    found = evaluate_rule(Rule("r", Condition.BROKER_GONE), view, NOW_MS)
    assert found is not None
    assert list(found) == ["broker 3", "broker 4", "broker 6"]


@pytest.mark.parametrize("controller", [-1, 9])
def test_a_controller_that_is_missed(controller: int) -> None:
    view = VIEW._replace(facts=facts(HEALTHY, controller=controller))
    found = evaluate_rule(Rule("r", Condition.CONTROLLER_GONE), view, NOW_MS)
    assert found == {"controller": "the cluster has no controller"}


def test_disks() -> None:
    folders = [
        LogDirFacts(1, "/full", False, 100 * GIB, 5 * GIB),
        LogDirFacts(1, "/half", False, 100 * GIB, 50 * GIB),
        LogDirFacts(2, "/old", False, -1, -1),
        LogDirFacts(2, "/broken", True, -1, -1),
    ]
    view = VIEW._replace(folders=folders)
    found = evaluate_rule(Rule("r", Condition.DISK), view, NOW_MS)
    assert found == {
        "broker 1 /full": "5.0 GiB are left, 5 % of the disk",
        "broker 2 /broken": "the log directory has failed",
    }
    found = evaluate_rule(Rule("r", Condition.DISK, below_share=0.0, below_bytes=60 * GIB), view, NOW_MS)
    assert found is not None
    assert "broker 1 /half" in found


def test_dead_letters() -> None:
    history = RecentEndHistory(10)
    for minute, end in ((-10, 3), (-4, 3), (0, 8)):
        history.add(end, NOW_MS + minute * 60_000)
    item = PartitionFacts("first-dead-letters", 0, 1, (1,), (1,))
    view = VIEW._replace(facts=facts(item), ends={TopicPartition("first-dead-letters", 0): history})
    rule = Rule("r", Condition.DEAD_LETTERS, topic="*-dead-letters")
    assert evaluate_rule(rule, view, NOW_MS) == {"topic first-dead-letters": "5 dead letters within 5 min"}
    assert evaluate_rule(rule._replace(above=5), view, NOW_MS) == {}
    history.add(8, NOW_MS + 600_000)
    assert evaluate_rule(rule, view, NOW_MS + 600_000) == {}


def test_pipelines(tmp_path: Path) -> None:
    here = {"host": socket.gethostname(), "pid": os.getpid(), "process_start": 1}
    there = {"host": "elsewhere", "pid": 1, "process_start": 1}
    runs: dict[str, object] = {
        "failed": {"state": "failed", "reason": "no Java", **there},
        "stopped": {"state": "stopped", **there},
        "killed": {"state": "running", **here},
        "huge": {"state": "failed", "reason": "x" * STATUS_BYTES_MAX, **there},
        "odd-process": {"state": "running", "host": socket.gethostname(), "pid": "x", "process_start": 0},
        "late": {"state": "running", **there, "queries": [{"query": "q", "lag": 500}, 7]},
        "broken": {"state": "running", **there, "queries": [{"query": "q", "error": "division by zero"}]},
        "odd": [1, 2],
    }
    for name, status in runs.items():
        folder = tmp_path / name / "_run"
        folder.mkdir(parents=True)
        (folder / "status.json").write_text(json.dumps(status))
    (tmp_path / "odd" / "_run" / "status.json").write_text("{")
    rule = Rule("r", Condition.PIPELINE, above=100)
    assert evaluate_pipeline_rule(rule, [tmp_path, tmp_path / "none"]) == {
        "pipeline broken": "q: division by zero",
        "pipeline failed": "failed: no Java",
        "pipeline killed": "the process ended without a final status",
        "pipeline late": "500 records behind, more than 100",
    }
    assert list(evaluate_pipeline_rule(rule._replace(pipeline="f*"), [tmp_path])) == ["pipeline failed"]
