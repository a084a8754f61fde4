"""A cluster as a Helm chart. Its templates are the same for every plan: what differs is in values.yaml. Pure."""

from __future__ import annotations

import json

from ottla import __version__
from ottla.cli.deploy.plan import Plan
from ottla.cli.deploy.settings import REPLICAS_REASON, counted
from ottla.cli.deploy.templates import fill, template
from ottla.cli.running.replicas import replica_settings
from ottla.cli.zookeeper.config import DEFAULTS

CHART = "Chart.yaml"
VALUES = "values.yaml"
TEMPLATES = (
    "_helpers.tpl",
    "NOTES.txt",
    "broker-settings.yaml",
    "brokers.yaml",
    "console.yaml",
    "external.yaml",
    "monitoring.yaml",
    "rack.yaml",
    "registry.yaml",
    "zookeeper.yaml",
)
INDENT = "    "


def helm_files(plan: Plan, command: str) -> dict[str, str]:
    """All files of the chart, by their names."""
    defaults = "\n".join(f"{INDENT}{key}={value}" for key, value in DEFAULTS.items())
    written = {f"templates/{name}": template(f"helm/templates/{name}") for name in TEMPLATES}
    name = "templates/zookeeper.yaml"
    written[name] = written[name].replace("<<zookeeper_defaults>>", defaults)
    return {
        CHART: fill(template("helm/Chart.yaml"), {"version": __version__}),
        VALUES: _values(plan, command),
        **written,
        "files/alerts.yml": template("monitoring/alerts.yml"),
        "files/ottla.json": template("monitoring/ottla.json"),
    }


def _values(plan: Plan, command: str) -> str:
    repository, tag = split_image(plan.image)
    return fill(
        template("helm/values.yaml"),
        {
            "size": f"{counted(plan.brokers, 'broker')} and {counted(plan.zookeepers, 'ZooKeeper')}",
            "command": command,
            "repository": repository,
            "tag": tag,
            "brokers": plan.brokers,
            "replicas_reason": REPLICAS_REASON[min(plan.brokers, 3)],
            "replicas": "\n".join(f'{key}: "{value}"' for key, value in replica_settings(plan.brokers).items()),
            "hosts": json.dumps(list(plan.hosts)),
            "port": plan.port,
            "zookeepers": plan.zookeepers,
        },
    )


def split_image(image: str) -> tuple[str, str]:
    """Repository and tag; a colon before a slash is that of a port."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")
