"""Writes a cluster as a Helm chart, and reads a chart's values for `deploy check`.

The templates are the same for every plan; plans differ only in values.yaml. The reader computes what the templates
produce. Pod names and node addresses are known only to Kubernetes, so they are not checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ottla import __version__
from ottla.base.broker_settings import load_broker_settings
from ottla.base.settings import SettingsError
from ottla.cli.deploy.deployment import BrokerFacts, Deployment, Published, ZooKeeperFacts, read_yaml
from ottla.cli.deploy.deployment_plan import BROKERS_MAX, NODE_PORTS, ZOOKEEPERS_MAX, DeploymentPlan, url_host
from ottla.cli.deploy.templates import REPLICAS_REASON, count_text, fill, template
from ottla.cli.processes.cluster_defaults import replica_settings
from ottla.cli.terminal import UsageError
from ottla.cli.zookeeper.server import DEFAULTS

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


def helm_files(plan: DeploymentPlan, command: str) -> dict[str, str]:
    """All files of the chart, by name."""
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


def _values(plan: DeploymentPlan, command: str) -> str:
    repository, tag = split_image(plan.image)
    return fill(
        template("helm/values.yaml"),
        {
            "size": f"{count_text(plan.brokers, 'broker')} and {count_text(plan.zookeepers, 'ZooKeeper')}",
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
    """Repository and tag; a colon before a slash belongs to a port."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")


# ---- reading
NODE: Final = "node-of-broker"
RELEASE: Final = "RELEASE"
MISSING: Final = object()


def read_helm(folder: Path) -> Deployment:
    """Read a chart's values. Raises UsageError if they are invalid."""
    read_yaml(folder / CHART)
    values = read_yaml(folder / VALUES)
    deployment = Deployment("helm", folder)
    if not (folder / "templates").is_dir():
        raise UsageError(f"{folder}: no folder templates: it is not a chart")
    brokers = _number(values, "brokers.replicas", 1, BROKERS_MAX)
    zookeepers = _number(values, "zookeeper.replicas", 0, ZOOKEEPERS_MAX)
    image = f"{_text(values, 'image.repository')}:{_text(values, 'image.tag')}"
    deployment.images[VALUES] = image
    deployment.broker_count = brokers
    deployment.is_zookeeper_here = zookeepers > 0
    hosts = _hosts(deployment, values, brokers)
    for index in range(zookeepers):
        _add_zookeeper(deployment, index, zookeepers)
    for index in range(brokers):
        _add_broker(deployment, values, index, hosts, zookeepers)
    _check_grace(deployment, values)
    if "/" not in image:
        deployment.warning(
            VALUES,
            f"the image {image} names no registry: nodes can start it only if they already have it",
            "Push it to one, and name it in image.repository",
        )
    deployment.unchecked += [
        "limits of open files: the nodes' container runtime sets them",
        "storage classes, node labels and free resources: only the Kubernetes cluster knows them",
        "changes to the chart's templates: see helm template",
    ]
    return deployment


def _add_broker(deployment: Deployment, values: Any, index: int, hosts: list[str], zookeepers: int) -> None:
    pod = f"{RELEASE}-brokers-{index}.{RELEASE}-brokers-pods"
    is_external = bool(_value(values, "external.enabled", False))
    port = _external_port(values, index)
    settings = _value(values, "brokers.settings", {})
    if not isinstance(settings, dict):
        raise UsageError(f"{deployment.folder / VALUES}: brokers.settings is not a mapping (key: value)")
    texts = {str(key): _plain(value) for key, value in settings.items()}
    if zookeepers:
        texts["zookeeper.connect"] = ",".join(f"{_zookeeper_host(server)}:2181" for server in range(zookeepers))
    host = hosts[index] if hosts else f"{NODE}-{index + 1}"
    texts |= {
        "node.id": str(index + 1),
        "listeners": "INTERNAL://:9092" + (",EXTERNAL://:9094" if is_external else ""),
        "advertised.listeners": f"INTERNAL://{pod}:9092"
        + (f",EXTERNAL://{url_host(host)}:{port}" if is_external else ""),
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": "/var/lib/ottla/data",
        "ottla.metrics.host": "0.0.0.0",  # noqa: S104 (as the chart has it)
        "ottla.metrics.port": "9404",
        "ottla.metrics.insecure": "true",
    }
    deployment.inner_names |= {pod, f"{NODE}-{index + 1}"}
    name = f"broker {index + 1}"
    if is_external:
        deployment.published.append(Published("", port, 9094, name, host if _is_balanced(values) else "every node"))
    try:
        loaded = load_broker_settings(None, texts)
    except SettingsError as problem:
        for cause in problem.problems if index == 0 else ():
            text = cause.replace("--override ", "brokers.settings ")
            deployment.problem(VALUES, text, "Brokers would not start: correct brokers.settings")
        return
    stop = float(_number(values, "brokers.terminationGracePeriodSeconds", 0, 1 << 31))
    wait = float(_number(values, "brokers.waitForReplicasSeconds", 0, 1 << 31))
    deployment.brokers.append(BrokerFacts(name, VALUES, loaded, stop_seconds=stop - wait))


def _add_zookeeper(deployment: Deployment, index: int, count: int) -> None:
    properties = {f"server.{number + 1}": f"{_zookeeper_host(number)}:2888:3888" for number in range(count)}
    address = frozenset({f"{_zookeeper_host(index)}:2181"})
    deployment.inner_names.add(_zookeeper_host(index))
    deployment.zookeepers.append(ZooKeeperFacts(f"ZooKeeper {index + 1}", VALUES, index + 1, properties, address))


def _zookeeper_host(index: int) -> str:
    return f"{RELEASE}-zookeeper-{index}.{RELEASE}-zookeeper"


def _hosts(deployment: Deployment, values: Any, brokers: int) -> list[str]:
    given = _value(values, "external.hosts", [])
    kind = _value(values, "external.type", "NodePort")
    if not isinstance(given, list):
        raise UsageError(f"{deployment.folder / VALUES}: external.hosts is not a list: [name, name, ...], or []")
    hosts = [str(host) for host in given]
    if kind not in ("NodePort", "LoadBalancer"):
        deployment.problem(VALUES, f"external.type is {kind}", "Write NodePort or LoadBalancer")
    if _is_balanced(values) and len(hosts) != brokers:
        deployment.problem(
            VALUES,
            f"external.type LoadBalancer needs a name for each of {brokers} brokers, external.hosts has {len(hosts)}",
            "Name them all, in the order of the brokers",
        )
    elif len(hosts) > 1 and len(hosts) != brokers:
        deployment.problem(
            VALUES,
            f"external.hosts has {len(hosts)} names for {brokers} brokers",
            "Give none, one for all, or one for each",
        )
    if not hosts:
        return []
    return (hosts * brokers)[:brokers]


def _external_port(values: Any, index: int) -> int:
    if _is_balanced(values):
        return _number(values, "external.loadBalancerPort", 1, 65_535)
    return _number(values, "external.firstNodePort", NODE_PORTS.start, NODE_PORTS.stop - 1) + index


def _is_balanced(values: Any) -> bool:
    return bool(_value(values, "external.type", "NodePort") == "LoadBalancer")


def _check_grace(deployment: Deployment, values: Any) -> None:
    grace = _number(values, "brokers.terminationGracePeriodSeconds", 0, 1 << 31)
    wait = _number(values, "brokers.waitForReplicasSeconds", 0, 1 << 31)
    if grace <= wait:
        deployment.problem(
            VALUES,
            f"brokers wait {wait} s for replicas and are killed after {grace} s",
            "Make brokers.terminationGracePeriodSeconds about three minutes larger",
        )


def _value(values: Any, path: str, default: Any = MISSING) -> Any:
    found = values
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            if default is MISSING:
                raise UsageError(f"{VALUES}: {path} is missing")
            return default
        found = found[name]
    return default if found is None and default is not MISSING else found


def _text(values: Any, path: str) -> str:
    return str(_value(values, path))


def _number(values: Any, path: str, least: int, most: int) -> int:
    found = _value(values, path)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise UsageError(f"{VALUES}: {path} is {found!r}, not a whole number from {least} to {most}")
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
