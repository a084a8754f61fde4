"""The figures of a run for Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from ottla.pipelines.running.accounting import StepCount
from ottla.pipelines.running.metrics import MetricsServer
from ottla.pipelines.running.progress import Snapshot
from ottla.pipelines.running.status import Status


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


def test_what_is_unknown_has_none() -> None:
    found = samples(Snapshot("main"))
    assert ("ottla_pipeline_lag_records", "main") not in found
    assert ("ottla_pipeline_last_batch_timestamp_seconds", "main") not in found
    assert found["ottla_pipeline_up", "main"] == 1


def test_without_a_port_nothing_listens() -> None:
    with MetricsServer(None) as server:
        assert "off" in repr(server)
