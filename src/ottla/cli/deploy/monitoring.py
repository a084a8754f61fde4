"""Prometheus and Grafana for a deployment: who is asked, which alerts, which dashboard. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.deploy.templates import fill, template

ALERTS = ("alerts.yml", "pipeline-alerts.yml")


def prometheus_files(targets: Sequence[str]) -> dict[str, str]:
    """A folder for Prometheus; targets are the metrics endpoints of all brokers."""
    listed = ", ".join(f'"{target}"' for target in targets)
    written = {f"prometheus/{name}": template(f"monitoring/{name}") for name in ALERTS}
    # No pipelines yet: a target that nobody serves would be an alert.
    config = fill(template("monitoring/prometheus.yml"), {"targets": listed, "pipelines": ""})
    return {"prometheus/prometheus.yml": config, **written}


def grafana_files(prometheus: str) -> dict[str, str]:
    """Grafana's provisioning: where Prometheus is, and the dashboard."""
    source = fill(template("monitoring/datasource.yml"), {"prometheus": prometheus})
    return {
        "grafana/provisioning/datasources/prometheus.yml": source,
        "grafana/provisioning/dashboards/ottla.yml": template("monitoring/dashboards.yml"),
        "grafana/dashboards/ottla.json": template("monitoring/ottla.json"),
    }
