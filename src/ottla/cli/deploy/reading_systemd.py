"""What units and settings for systemd say. A path such as /etc/ottla is looked for in the folder first.

Units are read as far as they are about us: commands, instances, folders, limits. `systemd-analyze verify` knows
the rest.
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
from ottla.cli.deploy.deployment import BrokerFacts, Deployment, Folder, Published, ZooKeeperFacts
from ottla.cli.deploy.documents import read_properties_file, read_text
from ottla.cli.running.cores import AUTO, PROCESSES_MAX, count_or_auto
from ottla.cli.running.process_settings import check_processes, put_over, settings_of
from ottla.cli.terminal import ToolError, UsageError
from ottla.cli.zookeeper.config import PORT as ZOOKEEPER_PORT

PLACES: Final = ("etc/systemd/system", ".")
STOP_SECONDS_DEFAULT: Final = 90.0
INSTANCE: Final = "%i"
STATE: Final = Path("/var/lib")
_TIME: Final = re.compile(r"(\d+)\s*(ms|s|sec|min|m|h)?")
_FACTORS: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


class Unit(NamedTuple):
    """A unit file; of a key that comes several times the last value, of ExecStart and folders all words."""

    path: Path
    lines: list[tuple[str, str]]

    def one(self, key: str) -> str | None:
        return next((value for name, value in reversed(self.lines) if name == key), None)

    def words(self, key: str) -> list[str]:
        return [word for name, value in self.lines if name == key for word in value.split()]


def unit_files(folder: Path) -> list[Path]:
    for place in PLACES:
        found = sorted((folder / place).glob("*.service"))
        if found:
            return found
    return []


def read_systemd(folder: Path) -> Deployment:
    """Raises UsageError for units that cannot be read."""
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
            _read_guest(deployment, unit, command)
    deployment.is_zookeeper_here = bool(deployment.zookeepers)
    deployment.unchecked.append("what systemctl edit has added on a machine")
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
    """180, 180s, 3min; None for infinity and for what is no time."""
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


def _option(command: list[str], name: str) -> str | None:
    for index, word in enumerate(command):
        if word == name and index + 1 < len(command):
            return command[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _instances(deployment: Deployment, unit: Unit, command: list[str]) -> Iterator[tuple[str, Path]]:
    """Each instance of a template unit with its file; the only one of another."""
    named = _option(command, "--config")
    place = unit.path.name
    if named is None:
        deployment.unchecked.append(f"{place}: it names no settings file (--config)")
        return
    beside = deployment.folder / named.lstrip("/")
    if INSTANCE not in named:
        if not beside.is_file() and not Path(named).is_file():
            deployment.problem(place, f"its settings file {named} is not there", "Write it, or mend ExecStart")
        else:
            yield "", beside if beside.is_file() else Path(named)
        return
    pattern = re.compile(re.escape(beside.name).replace(re.escape(INSTANCE), r"([\w.:-]+)"))
    found = [(match[1], path) for path in sorted(beside.parent.glob("*")) if (match := pattern.fullmatch(path.name))]
    if not found:
        deployment.problem(place, f"there is no file for any instance ({named})", f"Write {named.replace('%i', '1')}")
    yield from found


def _read_broker(deployment: Deployment, unit: Unit, command: list[str], instance: str, file: Path) -> None:
    place = file.name
    count = _option(command, "--processes")
    try:
        overrides = parse_pairs([word for name, word in _pairs(command) if name == "--override"], allow_bare=False)
        settings = load_broker_settings(file, overrides)
        several = [settings]
        if count is not None:
            several = _processes(deployment, settings, count, file, overrides)
    except (SettingsError, ToolError) as problem:
        deployment.broker_count += 1
        for cause in problem.problems if isinstance(problem, SettingsError) else (str(problem),):
            deployment.problem(place, cause, "The broker would not start: mend its file")
        return
    for each in several:
        _note_broker(deployment, unit, instance, place, each, "" if count is None else f" (broker {each.node_id})")


def _processes(
    deployment: Deployment, settings: BrokerSettings, count: str, file: Path, overrides: dict[str, str]
) -> list[BrokerSettings]:
    """The brokers that one unit runs. Raises UsageError."""
    number = 1
    if count == AUTO:
        deployment.unchecked.append(f"{file.name}: how many brokers --processes {count} is on its machine")
    else:
        try:
            number = count_or_auto("processes", PROCESSES_MAX)(count)
        except ArgumentTypeError as problem:
            raise UsageError(f"--processes: {problem}") from None
    check_processes(settings, number)
    machine = settings.advertised_listeners[0].host
    each = (put_over(overrides, settings_of(settings, process, machine)) for process in range(number))
    return [load_broker_settings(file, own) for own in each]


def _note_broker(
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
    """The unit must let it write there: most of the disk is read-only for it."""
    made = [STATE / word.replace(INSTANCE, instance) for word in unit.words("StateDirectory")]
    open_to_it = [Path(word.replace(INSTANCE, instance).lstrip("-+")) for word in unit.words("ReadWritePaths")]
    is_made = any(Path(path).is_relative_to(each) for each in made)
    deployment.folders.append(Folder(path, owner, machine, is_made=is_made))
    if is_made or any(Path(path).is_relative_to(each) for each in open_to_it):
        return
    if (unit.one("ProtectSystem") or "") == "strict":
        deployment.problem(
            f"{unit.path.name} and {owner}",
            f"{path} is outside of its StateDirectory, and ProtectSystem=strict makes it read-only",
            f"Add ReadWritePaths={path} to the unit (and DynamicUser=no with a user who owns it), or choose a folder "
            f"below {made[0] if made else STATE}",
        )


def _read_zookeeper(deployment: Deployment, unit: Unit, command: list[str], instance: str, file: Path) -> None:
    properties = read_properties_file(file)
    number = (_option(command, "--server-id") or "").replace(INSTANCE, instance)
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
    """`host:2888:3888` of a server line, with or without what follows."""
    host, *ports = text.partition(";")[0].removesuffix(":participant").rsplit(":", 2)
    return host.strip("[]"), ports


def _read_guest(deployment: Deployment, unit: Unit, command: list[str]) -> None:
    default = {"registry": "8081", "console": "8080"}[command[1]]
    port = _option(command, "--port") or default
    host = _option(command, "--host") or "127.0.0.1"
    if port.isdecimal():
        address = "" if host == "0.0.0.0" else host  # noqa: S104 (compared)
        deployment.published.append(Published(address, int(port), int(port), unit.path.stem, ""))


def _pairs(command: list[str]) -> Iterator[tuple[str, str]]:
    return pairwise(command)
