"""What a compose file says: brokers by their variables, ZooKeepers by their files, published ports, volumes.

Compose knows more ways to say things than are understood here; what is not is told as not checked, never guessed.
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
from ottla.cli.deploy.deployment import BrokerFacts, Deployment, Folder, Published, ZooKeeperFacts
from ottla.cli.deploy.documents import read_properties_file, read_text, read_yaml
from ottla.cli.terminal import UsageError

FILES: Final = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
IMAGE_SETTINGS: Final = "/etc/ottla/server.properties"
IMAGE_USER: Final = 10_001
DATA: Final = "/var/lib/ottla"
ZOO_CFG: Final = "/conf/zoo.cfg"
STOP_SECONDS_DEFAULT: Final = 10.0
# Who sets one of these is a broker; other programs have variables that begin with KAFKA_, too.
BROKER_KEYS: Final = frozenset({"node.id", "broker.id", "listeners", "advertised.listeners", "zookeeper.connect"})
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:?[-?+])([^}]*))?\}|(\w+))")
_SECONDS: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_PORT: Final = re.compile(r"(?:(?:(\[[^]]*\]|[^:]*):)?(\d+):)?(\d+)(?:/tcp)?")


def compose_file(folder: Path) -> Path | None:
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def read_compose(folder: Path) -> Deployment:
    """Raises UsageError for a file that is no compose file."""
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
            raise UsageError(f"{path}: service {name} is no mapping (key: value)")
        _read_service(deployment, path, str(name), _filled(service, variables))
    if not deployment.broker_count:
        raise UsageError(f"{path}: no service is a broker (with KAFKA_NODE_ID or KAFKA_LISTENERS, or `ottla broker`)")
    deployment.inner_names |= {str(name) for name in services}
    deployment.is_zookeeper_here = bool(deployment.zookeepers)
    deployment.unchecked.append("volumes that Docker keeps itself: their size and their disk")
    if "include" in document:
        deployment.unchecked.append(f"{path.name}: include (what other files say)")
    return deployment


def _read_service(deployment: Deployment, path: Path, name: str, service: dict[str, Any]) -> None:
    if "extends" in service:
        deployment.unchecked.append(f"{name}: extends")
    environment = _environment(deployment, name, service)
    command = _words(service.get("entrypoint")) + _words(service.get("command"))
    is_ours = command[:1] == ["ottla"]
    is_broker = command[:2] == ["ottla", "broker"] or (
        not _words(service.get("entrypoint")) and any(key_of_variable(each) in BROKER_KEYS for each in environment)
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
            deployment.problem(name, cause, "The broker would not start: mend it in its environment")
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
    """What clients outside are told must be a port that leads to the listener."""
    bound = {listener.name: listener.port for listener in settings.listeners}
    among = (settings.inter_broker_listener_name or "").upper()
    for advertised in settings.advertised_listeners:
        if advertised.host == name or advertised.name not in bound or (len(bound) > 1 and advertised.name == among):
            continue  # for services of the same file
        leads = {each.port: each.inner for each in published}
        if leads.get(advertised.port) != bound[advertised.name]:
            deployment.problem(
                name,
                f"clients are told to connect to {advertised}, and no published port leads from {advertised.port} to "
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
            folder = Folder(str(_source(path, source)), name, "", is_made=False, user=IMAGE_USER)
            deployment.folders.append(folder)
        else:
            # The same volume for two brokers is found as the same folder.
            deployment.folders.append(Folder(f"volume {source}", name, "", is_made=True))


def _read_zookeeper(
    deployment: Deployment, path: Path, name: str, service: dict[str, Any], environment: Mapping[str, str]
) -> None:
    own = dict(_mounts(deployment, name, service)).get(ZOO_CFG)
    properties: dict[str, str] = {}
    if own is not None:
        file = _source(path, own)
        if not file.is_file():
            deployment.problem(name, f"it mounts {own}, and there is no such file", "Write it, or mend the path")
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
            deployment.unchecked.append(f"{name}: the port {item} (a range, UDP, or a form that is not known here)")
        elif match[2] is not None:
            address = (match[1] or "").strip("[]")
            yield Published("" if address in ("0.0.0.0", "::") else address, int(match[2]), int(match[3]), name, "")  # noqa: S104


def _items(deployment: Deployment, name: str, service: dict[str, Any], key: str) -> list[Any]:
    given = service.get(key)
    if given is not None and not isinstance(given, list):
        deployment.problem(name, f"{key} is no list", "Write - and a value, a line each")
        return []
    return given or []


def _mounts(deployment: Deployment, name: str, service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where something is mounted, and what."""
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
        deployment.problem(name, f"stop_grace_period: {text} is no time", "Write it as 180s or 3m")
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _words(value: object) -> list[str]:
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


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """With ${NAME}, ${NAME:-default} and $NAME replaced, as compose does."""
    if isinstance(value, dict):
        return {key: _filled(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
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
