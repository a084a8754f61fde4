"""The templates of a deployment's files, and how files are written to a folder.

A template is a package data file with <<names>>. It has no conditions and no loops: a repeated part is a template of
its own, so each template reads like the resulting file.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from ottla.cli.deploy.deployment_plan import COMPOSE, DeploymentPlan, ServerPlacement
from ottla.cli.processes.cluster_defaults import REPLICAS_MAX
from ottla.cli.terminal import ToolError, UsageError
from ottla.cli.zookeeper.server import DEFAULTS

_NAME: Final = re.compile(r"<<([a-z_]+)>>")


def template(name: str) -> str:
    """The text of a template, such as "compose/broker.yaml"."""
    return files(__package__).joinpath("templates", *name.split("/")).read_text(encoding="utf-8")


def fill(text: str, values: Mapping[str, object]) -> str:
    """Replace the names in a text. A line that consists of a name is removed if the value is empty."""
    lines: list[str] = []
    for line in text.splitlines():
        alone = _NAME.fullmatch(line.strip())
        if alone is None:
            lines.append(_NAME.sub(lambda match: str(values[match[1]]), line))
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += [f"{indent}{each}" if each else "" for each in str(values[alone[1]]).splitlines()]
    return "\n".join([*lines, ""])


# The reason for the number of replicas, by the number of brokers.
REPLICAS_REASON: Final = {
    1: "One broker, one copy: records are lost with its disk.",
    2: "Two copies, of which one is enough while the other broker is offline.",
    3: "Three copies, of which two have every acknowledged record: any one broker may fail without data loss.",
}


def rack_of(plan: DeploymentPlan, place: ServerPlacement) -> str:
    """The rack of a server: each of several machines is one, so replicas are spread over machines."""
    if len(plan.hosts) > 1:
        return place.host
    if plan.kind == COMPOSE and plan.brokers > 1:
        return f"rack-{(place.number - 1) % REPLICAS_MAX + 1}"
    return ""


def zookeeper_properties(servers: Sequence[str], data: str, port: int, address: str, audience: str) -> str:
    """zoo.cfg with the defaults of `ottla zookeeper` written out, because other ZooKeepers have different ones."""
    values = {
        "whom": audience,
        "data": data,
        "port": port,
        "address": f"clientPortAddress={address}" if address else "",
        "servers": "\n".join(f"server.{number}={server}" for number, server in enumerate(servers, 1)),
        "defaults": "\n".join(f"{key}={value}" for key, value in DEFAULTS.items()),
    }
    return fill(template("config/zookeeper.properties"), values)


def count_text(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


# ---- Prometheus and Grafana
ALERTS = ("alerts.yml", "pipeline-alerts.yml")


def prometheus_files(targets: Sequence[str]) -> dict[str, str]:
    """A folder for Prometheus; targets are the metrics endpoints of all brokers."""
    listed = ", ".join(f'"{target}"' for target in targets)
    written = {f"prometheus/{name}": template(f"monitoring/{name}") for name in ALERTS}
    # No pipelines are configured: an unreachable target would raise an alert.
    config = fill(template("monitoring/prometheus.yml"), {"targets": listed, "pipelines": ""})
    return {"prometheus/prometheus.yml": config, **written}


def grafana_files(prometheus: str) -> dict[str, str]:
    """Grafana's provisioning: the address of Prometheus, and the dashboard."""
    source = fill(template("monitoring/datasource.yml"), {"prometheus": prometheus})
    return {
        "grafana/provisioning/datasources/prometheus.yml": source,
        "grafana/provisioning/dashboards/ottla.yml": template("monitoring/dashboards.yml"),
        "grafana/dashboards/ottla.json": template("monitoring/ottla.json"),
    }


# ---- writing
FILES_NAMED_MAX = 3


def check_target(folder: Path) -> None:
    """Raises UsageError unless the folder is empty or does not exist."""
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder} is a dangling link: choose another folder")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: choose another")
    try:
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except OSError as problem:
        raise ToolError(f"cannot read {folder}: {(problem.strerror or str(problem)).lower()}") from None
    if found:
        more = ", ..." if len(found) > FILES_NAMED_MAX else ""
        raise UsageError(
            f"{folder} is not empty ({', '.join(found[:FILES_NAMED_MAX])}{more}): choose a new or empty folder. "
            "Nothing was written"
        )


def write_files(folder: Path, written: Mapping[str, str]) -> None:
    """Write all files or none: they get their names only after all are written, so a full disk leaves nothing behind.

    An existing folder is kept: it may be a mount point or the current directory of a shell.
    """
    check_target(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=".unfinished-"))
        try:
            for name, text in written.items():
                path = unfinished / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            for path in list(unfinished.iterdir()):
                path.rename(folder / path.name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as problem:
        raise ToolError(f"cannot write to {folder}: {(problem.strerror or str(problem)).lower()}") from None
