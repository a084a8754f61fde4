"""Writes a cluster as systemd units with settings files, and reads units for `deploy check`.

The reader looks for a path such as /etc/ottla in the folder first. It reads only commands, instances, folders and
limits; `systemd-analyze verify` checks the rest.
"""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.settings import SettingsError
from ottla.cli.arguments import parse_pairs
from ottla.cli.deploy.deployment import (
    BrokerFacts,
    Deployment,
    Folder,
    Published,
    ZooKeeperFacts,
    read_properties_file,
    read_text,
)
from ottla.cli.deploy.deployment_plan import ELECTION_PORT, PEER_PORT, DeploymentPlan, ServerPlacement, url_host
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
from ottla.cli.processes.cluster_defaults import AUTO, PROCESSES_MAX, count_or_auto_type, replica_settings
from ottla.cli.processes.multi_process_settings import check_processes, merge_overrides, process_overrides
from ottla.cli.terminal import ToolError, UsageError
from ottla.cli.zookeeper.server import PORT as ZOOKEEPER_PORT
from ottla.operations.metric_readings import METRICS_PORT

UNITS = "etc/systemd/system"
SETTINGS = "etc/ottla"


def systemd_files(plan: DeploymentPlan, command: str) -> dict[str, str]:
    """All files of the folder, by name."""
    values = {
        "hardening": template("systemd/hardening.conf"),
        "bootstrap": _bootstrap(plan),
        "metrics": ",".join(
            f"{server.number}=http://{_metrics_target(plan, server)}" for server in plan.broker_placements
        ),
    }
    units = ["ottla-registry.service", "ottla-console.service", "ottla.target"]
    units += ["ottla-zookeeper@.service"] if plan.zookeepers else []
    written = {f"{UNITS}/{name}": fill(template(f"systemd/{name}"), values) for name in units}
    written[f"{UNITS}/ottla@.service"] = _broker_unit(plan)
    for server in plan.broker_placements:
        written[f"{SETTINGS}/broker-{server.number}.properties"] = _broker(plan, server)
    for server in plan.zookeeper_placements:
        written[f"{SETTINGS}/zookeeper-{server.number}.properties"] = _zookeeper(plan, server)
    written["README.md"] = _readme(plan, command)
    targets = [_metrics_target(plan, server) for server in plan.broker_placements]
    return {**written, **prometheus_files(targets), **grafana_files("http://127.0.0.1:9090")}


def _broker_unit(plan: DeploymentPlan) -> str:
    # Start after the local ZooKeepers, and so stop before them: without ZooKeeper no other broker could take over.
    servers = [f"ottla-zookeeper@{server.number}.service" for server in plan.zookeeper_placements]
    return fill(
        template("systemd/broker.service"),
        {
            "header": "# ottla@1 is a broker with the settings /etc/ottla/broker-1.properties.",
            "which": " %i",
            "order": f"After={' '.join(['network-online.target', *servers])}\nPartOf=ottla.target",
            "config": "broker-%i.properties",
            "folder": "ottla-%i",
            "hardening": template("systemd/hardening.conf"),
            "target": "ottla.target",
        },
    )


def _broker(plan: DeploymentPlan, place: ServerPlacement) -> str:
    rack = rack_of(plan, place)
    connect = f"zookeeper.connect={plan.zookeeper_connect}" if plan.zookeepers else ""
    return fill(
        template("config/broker.properties"),
        {
            "number": place.number,
            "where": f" on {place.host}" if len(plan.hosts) > 1 else "",
            "rack": f"# Replicas of a partition are put into different racks.\nbroker.rack={rack}" if rack else "",
            "zookeeper": connect or "# A single broker keeps its metadata in its own folder.",
            "bind": plan.local_address if plan.is_local else "",
            "host": url_host(place.host),
            "port": place.port(plan.port),
            "replicas_reason": REPLICAS_REASON[min(plan.brokers, 3)],
            "replicas": "\n".join(f"{key}={value}" for key, value in replica_settings(plan.brokers).items()),
            "metrics": "\n".join(_metrics(plan, place)),
        },
    )


def _metrics(plan: DeploymentPlan, place: ServerPlacement) -> list[str]:
    port = f"ottla.metrics.port={place.port(METRICS_PORT)}"
    if len(plan.hosts) == 1:
        return [port, "ottla.metrics.host=127.0.0.1"]
    reason = "# Prometheus is on another machine: allow only its access (a firewall), or use TLS and a password."
    return [reason, port, "ottla.metrics.host=0.0.0.0", "ottla.metrics.insecure=true"]


def _metrics_target(plan: DeploymentPlan, place: ServerPlacement) -> str:
    """The metrics address; on a single machine it is reachable only locally."""
    host = url_host(place.host) if len(plan.hosts) > 1 else "127.0.0.1"
    return f"{host}:{place.port(METRICS_PORT)}"


def _zookeeper(plan: DeploymentPlan, place: ServerPlacement) -> str:
    servers = [
        f"{url_host(each.host)}:{each.port(PEER_PORT)}:{each.port(ELECTION_PORT)}" for each in plan.zookeeper_placements
    ]
    address = "127.0.0.1" if len(plan.hosts) == 1 else "0.0.0.0"  # noqa: S104 (brokers of other machines need it)
    data = f"/var/lib/ottla-zookeeper-{place.number}"
    scope = f"all servers except {'folder and port' if len(plan.hosts) == 1 else 'the folder'}"
    return zookeeper_properties(servers, data, place.port(ZOOKEEPER_PORT), address, scope)


def _readme(plan: DeploymentPlan, command: str) -> str:
    size = f"{count_text(plan.brokers, 'broker')} and {count_text(plan.zookeepers, 'ZooKeeper')}"
    values = {"size": size, "command": command, "bootstrap": _bootstrap(plan), "machines": _machines(plan)}
    return fill(template("systemd/README.md"), values)


def _machines(plan: DeploymentPlan) -> str:
    if len(plan.hosts) == 1:
        return f"    systemctl enable --now {' '.join(_units(plan, None))} ottla-registry ottla-console ottla.target"
    lines = []
    for host in dict.fromkeys(plan.hosts):
        guests = ["ottla-registry", "ottla-console"] if host == plan.hosts[0] else []
        lines.append(f"    {host}: systemctl enable --now {' '.join([*_units(plan, host), *guests, 'ottla.target'])}")
    return "\n".join(lines)


def _units(plan: DeploymentPlan, host: str | None) -> list[str]:
    """The units of a machine, or of the only machine if no host is named."""
    units = [f"ottla-zookeeper@{server.number}" for server in plan.zookeeper_placements if host in (None, server.host)]
    return units + [f"ottla@{server.number}" for server in plan.broker_placements if host in (None, server.host)]


def _bootstrap(plan: DeploymentPlan) -> str:
    return ",".join(f"{url_host(server.host)}:{server.port(plan.port)}" for server in plan.broker_placements)


# ---- reading
UNIT_FOLDERS: Final = ("etc/systemd/system", ".")
STOP_SECONDS_DEFAULT: Final = 90.0
INSTANCE: Final = "%i"
STATE_ROOT: Final = Path("/var/lib")
_TIME: Final = re.compile(r"(\d+)\s*(ms|s|sec|min|m|h)?")
_FACTORS: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


class Unit(NamedTuple):
    """A unit file. Of a repeated key the last value counts; ExecStart and folders collect all words."""

    path: Path
    lines: list[tuple[str, str]]

    def one(self, key: str) -> str | None:
        return next((value for name, value in reversed(self.lines) if name == key), None)

    def words(self, key: str) -> list[str]:
        return [word for name, value in self.lines if name == key for word in value.split()]


def unit_files(folder: Path) -> list[Path]:
    for folder_name in UNIT_FOLDERS:
        found = sorted((folder / folder_name).glob("*.service"))
        if found:
            return found
    return []


def read_systemd(folder: Path) -> Deployment:
    """Read the units of a folder. Raises UsageError if they are invalid."""
    deployment = Deployment("systemd", folder)
    for path in unit_files(folder):
        unit = read_unit(path)
        command = _command(unit)
        if command[1:2] == ["broker"]:
            for instance, file in _instances(deployment, unit, command):
                _read_broker(deployment, unit, command, instance, file)
        elif command[1:2] == ["zookeeper"]:
            for instance, file in _instances(deployment, unit, command):
                _read_zookeeper(deployment, unit, command, instance, file)
        elif command[1:2] in (["registry"], ["console"]):
            _read_service(deployment, unit, command)
    deployment.is_zookeeper_here = bool(deployment.zookeepers)
    deployment.unchecked.append("changes by systemctl edit on a machine")
    if not deployment.broker_count and not deployment.findings:
        raise UsageError(f"{folder}: no unit runs `ottla broker --config FILE`")
    return deployment


def read_unit(path: Path) -> Unit:
    lines: list[tuple[str, str]] = []
    text = read_text(path).replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;[":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise UsageError(f"{path}:{number}: neither KEY=VALUE nor [Section]: {stripped[:40]}")
        lines.append((key.strip(), value.strip()))
    return Unit(path, lines)


def seconds_of(text: str) -> float | None:
    """The seconds of 180, 180s or 3min; None for infinity and for invalid text."""
    parts = _TIME.findall(text)
    if not parts or _TIME.sub("", text).strip():
        return None
    return sum(float(number) * _FACTORS[unit or "s"] for number, unit in parts)


def _command(unit: Unit) -> list[str]:
    text = (unit.one("ExecStart") or "").lstrip("@-:+!")
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise UsageError(f"{unit.path}: ExecStart cannot be read: {problem}") from None
    return words if words and Path(words[0]).name == "ottla" else []


def _command_option(command: list[str], name: str) -> str | None:
    for index, word in enumerate(command):
        if word == name and index + 1 < len(command):
            return command[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _instances(deployment: Deployment, unit: Unit, command: list[str]) -> Iterator[tuple[str, Path]]:
    """Each instance of a template unit with its settings file; a plain unit yields one."""
    named = _command_option(command, "--config")
    unit_name = unit.path.name
    if named is None:
        deployment.unchecked.append(f"{unit_name}: it names no settings file (--config)")
        return
    local_file = deployment.folder / named.lstrip("/")
    if INSTANCE not in named:
        if not local_file.is_file() and not Path(named).is_file():
            deployment.problem(unit_name, f"its settings file {named} is not there", "Create it, or correct ExecStart")
        else:
            yield "", local_file if local_file.is_file() else Path(named)
        return
    pattern = re.compile(re.escape(local_file.name).replace(re.escape(INSTANCE), r"([\w.:-]+)"))
    found = [
        (match[1], path) for path in sorted(local_file.parent.glob("*")) if (match := pattern.fullmatch(path.name))
    ]
    if not found:
        deployment.problem(unit_name, f"no instance has a file ({named})", f"Write {named.replace('%i', '1')}")
    yield from found


def _read_broker(deployment: Deployment, unit: Unit, command: list[str], instance: str, file: Path) -> None:
    file_name = file.name
    count = _command_option(command, "--processes")
    try:
        overrides = parse_pairs([word for name, word in _pairs(command) if name == "--override"], allow_bare=False)
        settings = load_broker_settings(file, overrides)
        several = [settings]
        if count is not None:
            several = _processes(deployment, settings, count, file, overrides)
    except (SettingsError, ToolError) as problem:
        deployment.broker_count += 1
        for cause in problem.problems if isinstance(problem, SettingsError) else (str(problem),):
            deployment.problem(file_name, cause, "The broker would not start: correct its file")
        return
    for each in several:
        _add_broker(deployment, unit, instance, file_name, each, "" if count is None else f" (broker {each.node_id})")


def _processes(
    deployment: Deployment, settings: BrokerSettings, count: str, file: Path, overrides: dict[str, str]
) -> list[BrokerSettings]:
    """The brokers that one unit runs. Raises UsageError."""
    number = 1
    if count == AUTO:
        deployment.unchecked.append(f"{file.name}: how many brokers --processes {count} is on its machine")
    else:
        try:
            number = count_or_auto_type("processes", PROCESSES_MAX)(count)
        except ArgumentTypeError as problem:
            raise UsageError(f"--processes: {problem}") from None
    check_processes(settings, number)
    machine = settings.advertised_listeners[0].host
    each = (merge_overrides(overrides, process_overrides(settings, process, machine)) for process in range(number))
    return [load_broker_settings(file, own) for own in each]


def _add_broker(
    deployment: Deployment, unit: Unit, instance: str, place: str, settings: BrokerSettings, which: str
) -> None:
    deployment.broker_count += 1
    machine = settings.advertised_listeners[0].host
    name = unit.path.name.replace("@.service", f"@{instance}").removesuffix(".service") + which
    for listener in settings.listeners:
        address = "" if listener.host in ("0.0.0.0", "::") else listener.host  # noqa: S104 (compared)
        deployment.published.append(Published(address, listener.port, listener.port, name, machine))
    metrics = _metrics_url(settings, machine)
    if metrics is not None:
        port = settings.ottla_metrics_port
        deployment.published.append(
            Published(settings.ottla_metrics_host, port, port, f"the metrics of {name}", machine)
        )
    for path in settings.log_dirs:
        _read_folder(deployment, unit, instance, path, name, machine)
    stop = unit.one("TimeoutStopSec")
    limit = (unit.one("LimitNOFILE") or "").split(":")[0]
    deployment.brokers.append(
        BrokerFacts(
            name,
            place,
            settings,
            machine,
            metrics_url=metrics,
            open_files=int(limit) if limit.isdecimal() else None,
            stop_seconds=STOP_SECONDS_DEFAULT if stop is None else seconds_of(stop),
        )
    )


def _metrics_url(settings: BrokerSettings, machine: str) -> str | None:
    port = settings.ottla_metrics_port
    if port <= 0 or settings.ottla_metrics_ssl_keystore_location is not None:
        return None
    host = settings.ottla_metrics_host
    host = machine if host in ("0.0.0.0", "::") else host  # noqa: S104 (compared)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _read_folder(deployment: Deployment, unit: Unit, instance: str, path: str, owner: str, machine: str) -> None:
    """Record a folder and check that the unit may write to it: ProtectSystem makes most of the disk read-only."""
    made = [STATE_ROOT / word.replace(INSTANCE, instance) for word in unit.words("StateDirectory")]
    open_to_it = [Path(word.replace(INSTANCE, instance).lstrip("-+")) for word in unit.words("ReadWritePaths")]
    is_made = any(Path(path).is_relative_to(each) for each in made)
    deployment.folders.append(Folder(path, owner, machine, is_created_on_start=is_made))
    if is_made or any(Path(path).is_relative_to(each) for each in open_to_it):
        return
    if (unit.one("ProtectSystem") or "") == "strict":
        deployment.problem(
            f"{unit.path.name} and {owner}",
            f"{path} is outside of its StateDirectory, and ProtectSystem=strict makes it read-only",
            f"Add ReadWritePaths={path} to the unit (and DynamicUser=no with a user that owns it), or choose a folder "
            f"below {made[0] if made else STATE_ROOT}",
        )


def _read_zookeeper(deployment: Deployment, unit: Unit, command: list[str], instance: str, file: Path) -> None:
    properties = read_properties_file(file)
    number = (_command_option(command, "--server-id") or "").replace(INSTANCE, instance)
    name = unit.path.name.replace("@.service", f"@{instance}").removesuffix(".service")
    host, ports = server_address(properties.get(f"server.{number}", ""))
    port = properties.get("clientPort", str(ZOOKEEPER_PORT))
    address = properties.get("clientPortAddress", "")
    for each in (port, *ports):
        if each.isdecimal() and 0 < int(each) <= 65_535:
            bound = "" if address in ("", "0.0.0.0", "::") else address  # noqa: S104 (compared)
            deployment.published.append(Published(bound, int(each), int(each), name, host or "127.0.0.1"))
    if data := properties.get("dataDir"):
        _read_folder(deployment, unit, instance, data, name, host)
    deployment.zookeepers.append(
        ZooKeeperFacts(
            name,
            file.name,
            int(number) if number.isdecimal() else None,
            properties,
            frozenset(f"{each}:{port}" for each in (host, address) if each),
            host,
        )
    )


def server_address(text: str) -> tuple[str, list[str]]:
    """Host and ports of `host:2888:3888` in a server line, with or without a suffix."""
    host, *ports = text.partition(";")[0].removesuffix(":participant").rsplit(":", 2)
    return host.strip("[]"), ports


def _read_service(deployment: Deployment, unit: Unit, command: list[str]) -> None:
    default = {"registry": "8081", "console": "8080"}[command[1]]
    port = _command_option(command, "--port") or default
    host = _command_option(command, "--host") or "127.0.0.1"
    if port.isdecimal():
        address = "" if host == "0.0.0.0" else host  # noqa: S104 (compared)
        deployment.published.append(Published(address, int(port), int(port), unit.path.stem, ""))


def _pairs(command: list[str]) -> Iterator[tuple[str, str]]:
    return pairwise(command)
