"""The figures of a run for Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import Cost, Status
from ottla.pipelines.running.metrics import MetricsServer, families

ROOT = Path(__file__).parents[4]


def samples(*snapshots: Snapshot) -> dict[tuple[str, str], float]:
    server = MetricsServer(None)
    server.source = lambda: [Status("views", 1, 1, "here", "running", queries=snapshots)]
    return {
        (sample.name, sample.labels.get("fate", sample.labels.get("query", ""))): sample.value
        for family in text_string_to_metric_families(server.text())
        for sample in family.samples
    }


def test_every_known_figure_has_a_sample() -> None:
    step = StepCount("main", 1, "filter", 10, 7, 2, 0, 1, 7)
    now = Snapshot(
        "main", at_ms=1000, rows=10, batches=2, lag=5, lag_max=4, batch_ms=250, watermark_ms=500, steps=(step,)
    )
    found = samples(now)
    assert found["ottla_pipeline_rows_total", "main"] == 10
    assert found["ottla_pipeline_lag_records", "main"] == 5
    assert found["ottla_pipeline_lag_records_max", "main"] == 4
    assert found["ottla_pipeline_batch_seconds", "main"] == 0.25
    assert found["ottla_pipeline_watermark_timestamp_seconds", "main"] == 0.5
    assert found["ottla_pipeline_last_batch_timestamp_seconds", "main"] == 1.25
    fates = ("kept", "filtered", "late", "dead")
    assert [found["ottla_pipeline_step_rows_total", fate] for fate in fates] == [7, 2, 0, 1]


def test_unknown_values_have_no_sample() -> None:
    found = samples(Snapshot("main"))
    assert ("ottla_pipeline_lag_records", "main") not in found
    assert ("ottla_pipeline_last_batch_timestamp_seconds", "main") not in found
    assert found["ottla_pipeline_up", "main"] == 1


def test_without_a_port_nothing_listens() -> None:
    with MetricsServer(None) as server:
        assert "off" in repr(server)


def test_costs_and_restarts_of_a_run() -> None:
    server = MetricsServer(None)
    cost = Cost(12.5, 100, 200, 300)
    server.source = lambda: [
        Status("views", 1, 1, "here", "running", restarts=3, cost=cost),
        Status("other", 1, 1, "here", "failed"),
    ]
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(server.text())
        for sample in family.samples
    }
    assert found["ottla_pipeline_restarts_total", "views"] == 3
    assert found["ottla_pipeline_cpu_seconds_total", "views"] == 12.5
    assert found["ottla_pipeline_memory_bytes", "views", "java"] == 200
    assert (found["ottla_pipeline_failed", "views"], found["ottla_pipeline_failed", "other"]) == (0, 1)
    assert ("ottla_pipeline_cpu_seconds_total", "other") not in found


def test_the_alerts_for_prometheus_name_only_existing_metrics() -> None:
    shown = {family.name for family in families([])}
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "pipeline-alerts.yml").read_text())["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"\bottla_\w+", rule["expr"])}
    assert len(rules) >= 8
    assert len(named) >= 10
    assert named - shown == set()
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
