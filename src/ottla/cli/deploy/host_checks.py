"""Checks a deployment against this machine: names, ports, folders, limits, running brokers, and external validators.

The checks use short timeouts and change nothing. Servers on other machines are reported as not checked: run the command
there as well.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ottla import __version__
from ottla.base import java
from ottla.base.broker_checks import is_loopback
from ottla.cli.deploy.deployment import BrokerFacts, Deployment, Finding, Folder
from ottla.cli.deploy.deployment_plan import url_host
from ottla.cli.deploy.file_checks import problem, warning
from ottla.cli.ports import is_free
from ottla.cli.zookeeper.jars import JAVA_VERSION_MIN
from ottla.client.client import open_client
from ottla.client.errors import ClientError
from ottla.operations.doctor.findings import shorten_list
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import parse_metrics, read_url

REQUEST_SECONDS: Final = 3.0
REQUEST_MS: Final = 3_000
THREADS_MAX: Final = 16
TOOL_SECONDS: Final = 60.0
CLOCK_SECONDS_MAX: Final = 2.0
DISK_FULL: Final = 0.97
DISK_NEARLY_FULL: Final = 0.85
IGNORED: Final = "ignoring."  # the end of systemd's lines about unknown keys
CLOCK_PATH: Final = "/jolokia/version"


class RunningBroker(NamedTuple):
    """A running broker. The Kafka port reports neither version ("") nor clock; the metrics endpoint reports both."""

    node_id: str
    version: str
    seconds_off: float


def check_host(deployment: Deployment) -> list[Finding]:
    """The findings of this machine; skipped checks are added to the deployment."""
    running = _running(deployment)
    return [
        *check_names(deployment),
        *check_local_ports(deployment, running),
        *check_local_folders(deployment),
        *check_system(deployment),
        *check_running(deployment, running),
        *check_with_tools(deployment),
    ]


def check_names(deployment: Deployment) -> Iterator[Finding]:
    """Host names that this machine cannot resolve."""
    by_host: dict[str, list[str]] = {}
    for broker in deployment.brokers:
        hosts = [listener.host for listener in broker.settings.advertised_listeners]
        hosts += [
            server.rpartition(":")[0]
            for server in (broker.settings.zookeeper_connect or "").partition("/")[0].split(",")
        ]
        for host in dict.fromkeys(hosts):
            inner = host.strip("[]")
            if inner and inner not in deployment.inner_names:
                by_host.setdefault(inner, []).append(broker.place)
    with ThreadPoolExecutor(THREADS_MAX) as threads:  # in parallel: an unresponsive name server costs one timeout
        known = dict(zip(by_host, threads.map(resolve, by_host), strict=True))
    for host, places in by_host.items():
        if known[host] is None:
            yield problem(
                shorten_list(dict.fromkeys(places)),
                f"the name {host} does not resolve, at least not on this machine",
                "Correct the name, or add it to DNS or /etc/hosts of all machines and clients",
            )


def check_local_ports(deployment: Deployment, running: dict[str, RunningBroker]) -> Iterator[Finding]:
    elsewhere: list[str] = []
    if deployment.kind == "helm":
        deployment.unchecked.append("whether the nodes' ports are free")
        return
    for each in deployment.published:
        if each.machine and not is_local_host(each.machine):
            elsewhere.append(each.machine)
        elif not running and not is_free(each.port, each.address):
            yield problem(
                each.owner,
                f"port {each.port} is in use on this machine",
                f"Stop its owner (ss -ltnp 'sport = :{each.port}'), or choose another",
            )
    if elsewhere:
        names = shorten_list(dict.fromkeys(elsewhere))
        deployment.unchecked.append(f"ports, folders and limits of {names}: also run ottla deploy check there")
    if running:
        deployment.unchecked.append("whether ports are free: brokers of this cluster are running")


def check_local_folders(deployment: Deployment) -> Iterator[Finding]:
    for folder in deployment.folders:
        if (folder.machine and not is_local_host(folder.machine)) or folder.path.startswith("volume "):
            continue
        path = Path(folder.path)
        existing = next((each for each in (path, *path.parents) if each.exists()), Path("/"))
        if not path.exists() and not folder.is_created_on_start:
            yield problem(folder.owner, f"the folder {path} is not there", f"mkdir -p {path}, owned by {_user(folder)}")
        elif path.exists() and not path.is_dir():
            yield problem(folder.owner, f"{path} is not a folder", "Move that file away, or choose another folder")
        elif path.exists() and not folder.is_created_on_start and not _may_write(path, folder.user):
            yield problem(
                folder.owner, f"{_user(folder)} may not write to {path}", f"chown -R {folder.user or 'USER'} {path}"
            )
        yield from _check_disk(folder, existing)


def _check_disk(folder: Folder, there: Path) -> Iterator[Finding]:
    try:
        usage = shutil.disk_usage(there)
    except OSError:
        return
    if usage.total == 0:
        return
    share = 1 - usage.free / usage.total
    words = f"the disk of {folder.path} is {share:.0%} full, {usage.free / 1e9:.1f} GB are free"
    if share >= DISK_FULL:
        yield problem(folder.owner, words, "Free space, or choose another disk")
    elif share >= DISK_NEARLY_FULL:
        yield warning(folder.owner, words, "Free space, choose another disk, or keep less (log.retention.bytes)")


def check_system(deployment: Deployment) -> Iterator[Finding]:
    """Kernel limits that override the limits in the files."""
    wanted = max((broker.open_files or 0 for broker in deployment.brokers), default=0)
    try:
        most = int(Path("/proc/sys/fs/nr_open").read_text(encoding="ascii"))
    except (OSError, ValueError):
        deployment.unchecked.append("the kernel's limit of open files (no /proc)")
        return
    if wanted > most and deployment.kind != "helm":
        yield problem(
            deployment.kind,
            f"{wanted} open files are requested, and this machine's kernel allows {most}",
            "Raise sysctl fs.nr_open, or request less",
        )
    if deployment.kind == "systemd":
        yield from _check_java(deployment)
        program = Path("/opt/ottla/bin/ottla")
        if not program.exists() and any(
            not broker.machine or is_local_host(broker.machine) for broker in deployment.brokers
        ):
            yield warning(
                "ExecStart", f"{program} is not there", "Install it before you start the units: see README.md"
            )


def _check_java(deployment: Deployment) -> Iterator[Finding]:
    local_servers = [
        server.name for server in deployment.zookeepers if not server.machine or is_local_host(server.machine)
    ]
    if not local_servers:
        return
    try:
        java.choose_java(java.candidates(), "ZooKeeper", JAVA_VERSION_MIN)
    except java.NoJavaError as reason:
        yield problem(shorten_list(local_servers), str(reason), "Debian: apt install default-jre-headless")


def check_running(deployment: Deployment, running: dict[str, RunningBroker]) -> Iterator[Finding]:
    silent = [broker.name for broker in deployment.brokers if broker.name not in running]
    if silent and deployment.kind == "systemd":
        deployment.unchecked.append(
            f"clocks and versions of {shorten_list(silent)}: not running, or without access to their metrics"
        )
    elif silent:
        deployment.unchecked.append("clocks of other machines: containers use the clock of their host")
    for broker in deployment.brokers:
        found = running.get(broker.name)
        if found is None:
            continue
        if found.node_id != str(broker.settings.node_id):
            yield problem(
                broker.place,
                f"broker {found.node_id} runs at its address, not broker {broker.settings.node_id}",
                "Another cluster uses that port: choose another, or stop it",
            )
        if abs(found.seconds_off) > CLOCK_SECONDS_MAX:
            yield warning(
                broker.place,
                f"its clock is {abs(found.seconds_off):.0f} s {'ahead of' if found.seconds_off > 0 else 'behind'} "
                "this machine's: times of records, retention and expiry of logins go by it",
                "Run chrony or systemd-timesyncd on all machines",
            )
        if found.version and found.version != __version__:
            yield warning(
                broker.place,
                f"ottla {found.version} runs there, and this is {__version__}",
                "Upgrade all brokers, one at a time",
            )


def check_with_tools(deployment: Deployment) -> Iterator[Finding]:
    """Validate the files with the programs that will read them, where they are installed."""
    for tool, command in _validators(deployment):
        if not _is_installed(command):
            deployment.unchecked.append(f"the files by {tool}: it is not installed")
            continue
        try:
            done = subprocess.run(  # noqa: S603 (read-only programs of the machine)
                command,
                cwd=deployment.folder,
                capture_output=True,
                text=True,
                timeout=TOOL_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired):
            deployment.unchecked.append(f"the files by {tool}: it gave no answer")
            continue
        lines = _tool_errors(done.stderr)
        yield from (warning(tool, line.rstrip("."), "Correct that") for line in lines if line.endswith(IGNORED))
        errors = [line for line in lines if not line.endswith(IGNORED)]
        if done.returncode != 0 and (errors or not done.stderr.strip()):
            yield problem(tool, (errors or ["it rejects the files without a message"])[0].rstrip("."), "Correct that")


def _is_installed(command: list[str]) -> bool:
    """Whether the tool is installed. Compose is a plug-in that the docker command may lack."""
    if shutil.which(command[0]) is None or command[:2] != ["docker", "compose"]:
        return shutil.which(command[0]) is not None
    answer = subprocess.run(
        ["docker", "compose", "version"],  # noqa: S607 (resolved by PATH)
        capture_output=True,
        timeout=TOOL_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return answer.returncode == 0


def _tool_errors(text: str) -> list[str]:
    """The tool's messages about the files, without the missing ottla program, which another check reports."""
    lines = [line.strip() for line in text.splitlines() if "level=warning" not in line]
    return [line for line in lines if line and "is not executable: No such file" not in line]


def _validators(deployment: Deployment) -> Iterator[tuple[str, list[str]]]:
    if deployment.kind == "compose":
        yield "docker compose config", ["docker", "compose", "config", "--quiet"]
    elif deployment.kind == "helm":
        yield "helm template", ["helm", "template", "check", "."]
    else:
        from ottla.cli.deploy.systemd import unit_files  # noqa: PLC0415 (only needed here)

        units = [str(path.resolve()).replace("@.service", "@1.service") for path in unit_files(deployment.folder)]
        yield "systemd-analyze verify", ["systemd-analyze", "verify", "--man=no", *units]


def _running(deployment: Deployment) -> dict[str, RunningBroker]:
    """The running brokers, queried in parallel: unresponsive machines cost one timeout."""
    with ThreadPoolExecutor(THREADS_MAX) as threads:
        answers = threads.map(
            lambda broker: _identify_by_metrics(broker) or _identify_by_metadata(broker), deployment.brokers
        )
        return {
            broker.name: answer
            for broker, answer in zip(deployment.brokers, answers, strict=True)
            if answer is not None
        }


def _identify_by_metadata(broker: BrokerFacts) -> RunningBroker | None:
    """The broker at this port of this machine, if it speaks Kafka's protocol without a login."""
    for listener in broker.settings.advertised_listeners:
        if listener.protocol != "PLAINTEXT" or not is_local_host(listener.host) or is_free(listener.port, ""):
            continue
        host = url_host(listener.host)
        try:
            with open_client(
                f"{host}:{listener.port}", {}, timeout_ms=REQUEST_MS, connect_retry_ms=REQUEST_MS
            ) as client:
                brokers = client.cluster().brokers
        except ClientError:
            continue
        node_ids = (each.node_id for each in brokers if (each.host, each.port) == (listener.host, listener.port))
        return RunningBroker(str(next(node_ids, "unknown")), "", 0.0)
    return None


def _identify_by_metrics(broker: BrokerFacts) -> RunningBroker | None:
    if broker.metrics_url is None:
        return None
    try:
        page = read_url(broker.metrics_url, "/metrics", "", seconds_max=REQUEST_SECONDS)
        info = parse_metrics(page, 0.0, ("ottla_info",)).info()
        before = time.time()
        timestamp = json.loads(read_url(broker.metrics_url, CLOCK_PATH, "", seconds_max=REQUEST_SECONDS))["timestamp"]
        after = time.time()
    except (OperationError, ValueError, KeyError, TypeError):
        return None
    return RunningBroker(
        info.get("node_id", ""), info.get("version", ""), clock_offset_seconds(float(timestamp), before, after)
    )


def clock_offset_seconds(told: float, before: float, after: float) -> float:
    """The minimum offset of another clock, which reported whole seconds between `before` and `after`."""
    least, most = told - after, told + 1 - before
    return 0.0 if least <= 0 <= most else min(least, most, key=abs)


@cache
def resolve(host: str) -> tuple[str, ...] | None:
    """The addresses of a host name; None if it does not resolve."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return tuple(dict.fromkeys(str(item[4][0]) for item in found))


@cache
def is_local_host(host: str) -> bool:
    """Whether a name belongs to this machine: only its own addresses can be bound."""
    return is_loopback(host) or any(is_free(0, address) for address in resolve(host) or ())


def _may_write(path: Path, user: int | None) -> bool:
    if user is None:
        return os.access(path, os.W_OK)
    status = path.stat()
    if status.st_uid == user:
        return bool(status.st_mode & 0o200)
    return bool(status.st_mode & 0o002) or (status.st_gid == user and bool(status.st_mode & 0o020))


def _user(folder: Folder) -> str:
    return f"user {folder.user}" if folder.user is not None else "the service's user"
