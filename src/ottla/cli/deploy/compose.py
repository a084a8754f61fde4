"""Writes a cluster as a compose file with Prometheus and Grafana, and reads compose files for `deploy check`.

Compose allows more forms than are understood here; other forms are reported as not checked, never guessed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.environment import key_of_variable
from ottla.base.settings import SettingsError
from ottla.cli.deploy.deployment import (
    BrokerFacts,
    Deployment,
    Folder,
    Published,
    ZooKeeperFacts,
    read_properties_file,
    read_text,
    read_yaml,
)
from ottla.cli.deploy.deployment_plan import (
    ELECTION_PORT,
    INNER_PORT,
    PEER_PORT,
    DeploymentPlan,
    ServerPlacement,
    url_host,
)
from ottla.cli.deploy.templates import (
    REPLICAS_REASON,
    count_text,
    fill,
    grafana_files,
    prometheus_files,
    rack_of,
    template,
    zookeeper_properties,
)
from ottla.cli.processes.cluster_defaults import replica_settings
from ottla.cli.terminal import UsageError
from ottla.cli.zookeeper.server import PORT as ZOOKEEPER_PORT
from ottla.operations.metric_readings import METRICS_PORT

FILE = "compose.yaml"
VARIABLE_PREFIX = "KAFKA_"


def compose_files(plan: DeploymentPlan, command: str) -> dict[str, str]:
    """All files of the folder, by name."""
    written = {FILE: _compose(plan, command)}
    if plan.zookeepers:
        servers = [f"zookeeper-{server.number}:{PEER_PORT}:{ELECTION_PORT}" for server in plan.zookeeper_placements]
        written["zookeeper/zoo.cfg"] = zookeeper_properties(servers, "/data", ZOOKEEPER_PORT, "", "all servers")
    targets = [f"broker-{server.number}:{METRICS_PORT}" for server in plan.broker_placements]
    return {**written, **prometheus_files(targets), **grafana_files("http://prometheus:9090")}


def variable_of(key: str) -> str:
    """The environment variable of a setting, as in Kafka's images (`base/environment.py` reads it)."""
    return VARIABLE_PREFIX + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _compose(plan: DeploymentPlan, command: str) -> str:
    host = url_host(plan.hosts[0])
    zookeepers = [f"zookeeper-{server.number}" for server in plan.zookeeper_placements]
    brokers = [f"broker-{server.number}" for server in plan.broker_placements]
    replicas = [f"{variable_of(key)}: {value}" for key, value in replica_settings(plan.brokers).items()]
    values = {
        "command": command,
        "size": f"{count_text(plan.brokers, 'broker')} and {count_text(plan.zookeepers, 'ZooKeeper')}",
        "image": plan.image,
        "clients": "on this machine" if plan.is_local else "outside",
        "bootstrap": ",".join(f"{host}:{server.port(plan.port)}" for server in plan.broker_placements),
        "inner_bootstrap": ",".join(f"{name}:{INNER_PORT}" for name in brokers),
        "reach": _reachability_note(plan),
        "zookeeper_common": template("compose/zookeeper_common.yaml") if zookeepers else "",
        "zookeeper_connect": _connect(zookeepers),
        "broker_depends": "\n".join(["depends_on:", *_depends_on(zookeepers, 2)]) if zookeepers else "",
        "guests_depend": "\n".join(_depends_on(brokers, 0)),
        "replicas_reason": REPLICAS_REASON[min(plan.brokers, 3)],
        "replicas": "\n".join(replicas),
        "zookeepers": "".join(_zookeeper(server) for server in plan.zookeeper_placements),
        "brokers": "".join(_broker(plan, server) for server in plan.broker_placements),
        "volumes": "\n".join(f"{name}:" for name in (*zookeepers, *brokers)),
    }
    return fill(template("compose/compose.yaml"), values)


def _zookeeper(place: ServerPlacement) -> str:
    return fill(template("compose/zookeeper.yaml"), {"number": place.number})


def _broker(plan: DeploymentPlan, place: ServerPlacement) -> str:
    rack = rack_of(plan, place)
    values = {
        "number": place.number,
        "port": place.port(plan.port),
        "host": url_host(place.host),
        "published": plan.local_address if plan.is_local else "0.0.0.0",  # noqa: S104 (clients outside are asked for)
        "rack": f"KAFKA_BROKER_RACK: {rack}" if rack else "",
    }
    return fill(template("compose/broker.yaml"), values)


def _reachability_note(plan: DeploymentPlan) -> str:
    if plan.is_local:
        return "So the ports are those of 127.0.0.1. For other machines: ottla deploy init --host NAME"
    return "The brokers' ports are open to other machines, the others to this one: restrict access with a firewall."


def _connect(zookeepers: list[str]) -> str:
    if not zookeepers:
        return "# A single broker keeps its metadata in its own folder."
    return f"KAFKA_ZOOKEEPER_CONNECT: {','.join(f'{name}:{ZOOKEEPER_PORT}' for name in zookeepers)}"


def _depends_on(names: list[str], indent: int) -> list[str]:
    return [f"{' ' * indent}{name}: {{condition: service_started}}" for name in names]


# ---- reading
FILES: Final = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
IMAGE_SETTINGS: Final = "/etc/ottla/server.properties"
IMAGE_USER: Final = 10_001
DATA: Final = "/var/lib/ottla"
ZOO_CFG: Final = "/conf/zoo.cfg"
STOP_SECONDS_DEFAULT: Final = 10.0
# A service with one of these settings is a broker; other programs also use variables with the prefix KAFKA_.
BROKER_KEYS: Final = frozenset({"node.id", "broker.id", "listeners", "advertised.listeners", "zookeeper.connect"})
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:?[-?+])([^}]*))?\}|(\w+))")
_SECONDS: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_PORT: Final = re.compile(r"(?:(?:(\[[^]]*\]|[^:]*):)?(\d+):)?(\d+)(?:/tcp)?")


def compose_file(folder: Path) -> Path | None:
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def read_compose(folder: Path) -> Deployment:
    """Read a compose file. Raises UsageError if it is invalid."""
    path = compose_file(folder)
    assert path is not None
    deployment = Deployment("compose", folder)
    document = read_yaml(path)
    services = document.get("services")
    if not isinstance(services, dict) or not services:
        raise UsageError(f"{path}: no services")
    variables = {**_dot_env(folder), **os.environ}
    for name, service in services.items():
        if not isinstance(service, dict):
            raise UsageError(f"{path}: service {name} is not a mapping (key: value)")
        _read_service(deployment, path, str(name), _substitute(service, variables))
    if not deployment.broker_count:
        raise UsageError(f"{path}: no service is a broker (with KAFKA_NODE_ID or KAFKA_LISTENERS, or `ottla broker`)")
    deployment.inner_names |= {str(name) for name in services}
    deployment.is_zookeeper_here = bool(deployment.zookeepers)
    deployment.unchecked.append("Docker's own volumes: their size and disk")
    if "include" in document:
        deployment.unchecked.append(f"{path.name}: include (the included files)")
    return deployment


def _read_service(deployment: Deployment, path: Path, name: str, service: dict[str, Any]) -> None:
    if "extends" in service:
        deployment.unchecked.append(f"{name}: extends")
    environment = _environment(deployment, name, service)
    command = _command_words(service.get("entrypoint")) + _command_words(service.get("command"))
    is_ours = command[:1] == ["ottla"]
    is_broker = command[:2] == ["ottla", "broker"] or (
        not _command_words(service.get("entrypoint"))
        and any(key_of_variable(each) in BROKER_KEYS for each in environment)
    )
    published = list(_ports(deployment, name, service))
    deployment.published += published
    _restart(deployment, name, service)
    if (is_broker or is_ours) and isinstance(service.get("image"), str):
        deployment.images[name] = service["image"]
    if is_broker:
        _read_broker(deployment, path, name, service, environment, published)
    elif "zookeeper" in str(service.get("image", "")).lower() or command[:2] == ["ottla", "zookeeper"]:
        _read_zookeeper(deployment, path, name, service, environment)


def _read_broker(
    deployment: Deployment,
    path: Path,
    name: str,
    service: dict[str, Any],
    environment: Mapping[str, str],
    published: list[Published],
) -> None:
    deployment.broker_count += 1
    mounts = dict(_mounts(deployment, name, service))
    try:
        own = mounts.get(IMAGE_SETTINGS)
        if own is not None:
            settings = load_broker_settings(_source(path, own), environment=environment, is_container=True)
        else:
            with as_file(files(__package__).joinpath("templates", "config", "container.properties")) as image:
                settings = load_broker_settings(image, environment=environment, is_container=True)
    except SettingsError as problem:
        for cause in problem.problems:
            deployment.problem(name, cause, "The broker would not start: correct its environment")
        return
    _check_published(deployment, name, settings, published)
    _broker_folders(deployment, path, name, mounts)
    deployment.brokers.append(
        BrokerFacts(
            name,
            name,
            settings,
            open_files=_open_files(service),
            stop_seconds=_stop_seconds(deployment, name, service),
        )
    )


def _check_published(deployment: Deployment, name: str, settings: BrokerSettings, published: list[Published]) -> None:
    """Check that an advertised port is published and leads to the listener."""
    bound = {listener.name: listener.port for listener in settings.listeners}
    among = (settings.inter_broker_listener_name or "").upper()
    for advertised in settings.advertised_listeners:
        if advertised.host == name or advertised.name not in bound or (len(bound) > 1 and advertised.name == among):
            continue  # for services of the same file
        leads = {each.port: each.inner for each in published}
        if leads.get(advertised.port) != bound[advertised.name]:
            deployment.problem(
                name,
                f"clients are sent to {advertised}, and no published port leads from {advertised.port} to "
                f"the listener's {bound[advertised.name]}",
                f'Add "{advertised.port}:{bound[advertised.name]}" to its ports, or change KAFKA_ADVERTISED_LISTENERS',
            )


def _broker_folders(deployment: Deployment, path: Path, name: str, mounts: Mapping[str, str]) -> None:
    data = [source for target, source in mounts.items() if target == DATA or target.startswith(f"{DATA}/")]
    if not data:
        deployment.problem(
            name,
            f"no volume is mounted on {DATA}: its records go with the container",
            f"Add - {name}:{DATA} to its volumes, and {name}: to those of the file",
        )
    for source in data:
        if source.startswith((".", "/", "~")):
            folder = Folder(str(_source(path, source)), name, "", is_created_on_start=False, user=IMAGE_USER)
            deployment.folders.append(folder)
        else:
            # A volume that two brokers share is reported as a shared folder.
            deployment.folders.append(Folder(f"volume {source}", name, "", is_created_on_start=True))


def _read_zookeeper(
    deployment: Deployment, path: Path, name: str, service: dict[str, Any], environment: Mapping[str, str]
) -> None:
    own = dict(_mounts(deployment, name, service)).get(ZOO_CFG)
    properties: dict[str, str] = {}
    if own is not None:
        file = _source(path, own)
        if not file.is_file():
            deployment.problem(name, f"it mounts {own}, and this file does not exist", "Create it, or correct the path")
            return
        properties = read_properties_file(file)
    for server in environment.get("ZOO_SERVERS", "").split():
        key, _, value = server.partition("=")
        properties[key] = value.partition(";")[0]
    number = environment.get("ZOO_MY_ID", "")
    port = properties.get("clientPort", "2181")
    names = {name, str(service.get("hostname") or name)}
    deployment.zookeepers.append(
        ZooKeeperFacts(
            name,
            name,
            int(number) if number.isdecimal() else None,
            properties,
            frozenset(f"{each}:{port}" for each in names),
        )
    )


def _environment(deployment: Deployment, name: str, service: dict[str, Any]) -> dict[str, str]:
    given = service.get("environment") or {}
    if service.get("env_file"):
        deployment.unchecked.append(f"{name}: env_file (its variables)")
    if isinstance(given, dict):
        return {str(name): _text(value) for name, value in given.items() if value is not None}
    if isinstance(given, list):
        pairs = (str(item).partition("=") for item in given)
        return {name: value for name, separator, value in pairs if separator}
    deployment.problem(name, "environment is neither a mapping nor a list", "Write NAME: value, a line each")
    return {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ports(deployment: Deployment, name: str, service: dict[str, Any]) -> Iterator[Published]:
    for item in _items(deployment, name, service, "ports"):
        if isinstance(item, dict) and str(item.get("published", "")).isdecimal():
            inner = str(item.get("target", ""))
            yield Published(
                str(item.get("host_ip", "")), int(item["published"]), int(inner) if inner.isdecimal() else 0, name, ""
            )
            continue
        match = _PORT.fullmatch(str(item))
        if match is None:
            deployment.unchecked.append(f"{name}: the port {item} (a range, UDP, or an unsupported form)")
        elif match[2] is not None:
            address = (match[1] or "").strip("[]")
            yield Published("" if address in ("0.0.0.0", "::") else address, int(match[2]), int(match[3]), name, "")  # noqa: S104


def _items(deployment: Deployment, name: str, service: dict[str, Any], key: str) -> list[Any]:
    given = service.get(key)
    if given is not None and not isinstance(given, list):
        deployment.problem(name, f"{key} is not a list", "Write - and a value, a line each")
        return []
    return given or []


def _mounts(deployment: Deployment, name: str, service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs of mount target and source."""
    for item in _items(deployment, name, service, "volumes"):
        if isinstance(item, dict):
            yield str(item.get("target", "")), str(item.get("source", ""))
        elif isinstance(item, str) and ":" in item:
            source, target = item.split(":")[:2]
            yield target, source
        else:
            deployment.unchecked.append(f"{name}: the volume {item}")


def _source(path: Path, source: str) -> Path:
    return (path.parent / Path(source).expanduser()).resolve()


def _restart(deployment: Deployment, name: str, service: dict[str, Any]) -> None:
    if str(service.get("restart", "no")) == "no" and "profiles" not in service:
        deployment.warning(
            name, "it stays away after a crash or a restart of the machine", "Add restart: unless-stopped"
        )


def _open_files(service: dict[str, Any]) -> int | None:
    limits = service.get("ulimits")
    wanted = limits.get("nofile") if isinstance(limits, dict) else None
    if isinstance(wanted, dict):
        wanted = wanted.get("soft")
    return int(str(wanted)) if str(wanted).isdecimal() else None


def _stop_seconds(deployment: Deployment, name: str, service: dict[str, Any]) -> float | None:
    text = service.get("stop_grace_period")
    if text is None:
        return STOP_SECONDS_DEFAULT
    match = _SECONDS.fullmatch(str(text))
    if match is None or not any(match.groups()):
        deployment.problem(name, f"stop_grace_period: {text} is not a duration", "Write it as 180s or 3m")
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _command_words(value: object) -> list[str]:
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return [value]
    return [str(word) for word in value] if isinstance(value, list) else []


def _dot_env(folder: Path) -> dict[str, str]:
    file = folder / ".env"
    if not file.is_file():
        return {}
    pairs = (line.partition("=") for line in read_text(file).splitlines() if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, separator, value in pairs if separator}


def _substitute(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace ${NAME}, ${NAME:-default} and $NAME, as compose does."""
    if isinstance(value, dict):
        return {key: _substitute(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_substitute(each, variables) for each in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    return _VARIABLE.sub(lambda match: _variable(match, variables), value)


def _variable(match: re.Match[str], variables: Mapping[str, str]) -> str:
    dollar, braced, operator, word, bare = match.groups()
    if dollar:
        return "$"
    found = variables.get(braced or bare)
    if operator in ("+", ":+"):
        return str(word) if found else ""
    if found or (found is not None and operator != ":-"):
        return found
    return word if operator in ("-", ":-") else ""
