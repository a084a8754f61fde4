"""What this machine says about a deployment: names, ports, folders, limits, running brokers, other judges of files.

Only what the files speak of is asked, with short time-outs, and nothing is changed. A server whose host is another
machine is not looked for here: the check says so, and is to be run there.
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
from ottla.cli.deploy.checks import problem, warning
from ottla.cli.deploy.deployment import BrokerFacts, Deployment, Finding, Folder
from ottla.cli.deploy.plan import bracketed
from ottla.cli.zookeeper.jars import JAVA_VERSION_MIN
from ottla.client.errors import ClientError
from ottla.client.opening import open_client
from ottla.operations.doctor.findings import some
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import ask_page, parse_metrics

ASK_SECONDS: Final = 3.0
ASK_MS: Final = 3_000
THREADS_MAX: Final = 16
TOOL_SECONDS: Final = 60.0
CLOCK_SECONDS_MAX: Final = 2.0
DISK_FULL: Final = 0.97
DISK_NEARLY_FULL: Final = 0.85
IGNORED: Final = "ignoring."  # how systemd ends a line about what it does not know
CLOCK_PATH: Final = "/jolokia/version"


class Running(NamedTuple):
    """A broker that runs already: what it says it is. Its port tells neither version ("") nor clock, its metrics do."""

    node_id: str
    version: str
    seconds_off: float


def probe(deployment: Deployment) -> list[Finding]:
    """What is found here; what is not looked at is added to the deployment's list."""
    running = _running(deployment)
    return [
        *check_names(deployment),
        *check_ports_here(deployment, running),
        *check_folders_here(deployment),
        *check_system(deployment),
        *check_running(deployment, running),
        *check_with_tools(deployment),
    ]


def check_names(deployment: Deployment) -> Iterator[Finding]:
    """Addresses that nobody on this machine finds."""
    asked: dict[str, list[str]] = {}
    for broker in deployment.brokers:
        hosts = [listener.host for listener in broker.settings.advertised_listeners]
        hosts += [
            server.rpartition(":")[0]
            for server in (broker.settings.zookeeper_connect or "").partition("/")[0].split(",")
        ]
        for host in dict.fromkeys(hosts):
            inner = host.strip("[]")
            if inner and inner not in deployment.inner_names:
                asked.setdefault(inner, []).append(broker.place)
    with ThreadPoolExecutor(THREADS_MAX) as threads:  # a name server that does not answer is waited for once
        known = dict(zip(asked, threads.map(resolve, asked), strict=True))
    for host, places in asked.items():
        if known[host] is None:
            yield problem(
                some(dict.fromkeys(places)),
                f"the name {host} does not resolve, at least not on this machine",
                "Mend the name, or add it to DNS or /etc/hosts of all machines and clients",
            )


def check_ports_here(deployment: Deployment, running: dict[str, Running]) -> Iterator[Finding]:
    elsewhere: list[str] = []
    if deployment.kind == "helm":
        deployment.unchecked.append("whether the nodes' ports are free")
        return
    for each in deployment.published:
        if each.machine and not is_here(each.machine):
            elsewhere.append(each.machine)
        elif not running and not is_free(each.address, each.port):
            yield problem(
                each.owner,
                f"port {each.port} is in use on this machine",
                f"Stop who has it (ss -ltnp 'sport = :{each.port}'), or choose another",
            )
    if elsewhere:
        names = some(dict.fromkeys(elsewhere))
        deployment.unchecked.append(f"ports, folders and limits of {names}: run ottla deploy check there, too")
    if running:
        deployment.unchecked.append("whether ports are free: brokers of this cluster run already")


def check_folders_here(deployment: Deployment) -> Iterator[Finding]:
    for folder in deployment.folders:
        if (folder.machine and not is_here(folder.machine)) or folder.path.startswith("volume "):
            continue
        path = Path(folder.path)
        there = next((each for each in (path, *path.parents) if each.exists()), Path("/"))
        if not path.exists() and not folder.is_made:
            yield problem(folder.owner, f"the folder {path} is not there", f"mkdir -p {path}, owned by {_user(folder)}")
        elif path.exists() and not path.is_dir():
            yield problem(folder.owner, f"{path} is not a folder", "Move that file away, or choose another folder")
        elif path.exists() and not folder.is_made and not _may_write(path, folder.user):
            yield problem(
                folder.owner, f"{_user(folder)} may not write to {path}", f"chown -R {folder.user or 'USER'} {path}"
            )
        yield from _check_disk(folder, there)


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
        yield problem(folder.owner, words, "Make room, or choose another disk")
    elif share >= DISK_NEARLY_FULL:
        yield warning(folder.owner, words, "Make room, choose another disk, or keep less (log.retention.bytes)")


def check_system(deployment: Deployment) -> Iterator[Finding]:
    """What the kernel allows at most counts before what a file asks for."""
    wanted = max((broker.open_files or 0 for broker in deployment.brokers), default=0)
    try:
        most = int(Path("/proc/sys/fs/nr_open").read_text(encoding="ascii"))
    except (OSError, ValueError):
        deployment.unchecked.append("the kernel's limit of open files (no /proc)")
        return
    if wanted > most and deployment.kind != "helm":
        yield problem(
            deployment.kind,
            f"{wanted} open files are asked for, and this machine's kernel allows {most}",
            "sysctl fs.nr_open, or ask for less",
        )
    if deployment.kind == "systemd":
        yield from _check_java(deployment)
        program = Path("/opt/ottla/bin/ottla")
        if not program.exists() and any(not broker.machine or is_here(broker.machine) for broker in deployment.brokers):
            yield warning(
                "ExecStart", f"{program} is not there", "Install it before the units are started: README.md says how"
            )


def _check_java(deployment: Deployment) -> Iterator[Finding]:
    here = [server.name for server in deployment.zookeepers if not server.machine or is_here(server.machine)]
    if not here:
        return
    try:
        java.choose(java.candidates(), "ZooKeeper", JAVA_VERSION_MIN)
    except java.NoJavaError as reason:
        yield problem(some(here), str(reason), "Debian: apt install default-jre-headless")


def check_running(deployment: Deployment, running: dict[str, Running]) -> Iterator[Finding]:
    silent = [broker.name for broker in deployment.brokers if broker.name not in running]
    if silent and deployment.kind == "systemd":
        deployment.unchecked.append(
            f"clocks and versions of {some(silent)}: not running, or their metrics are not for us"
        )
    elif silent:
        deployment.unchecked.append("clocks of other machines: containers have that of their host")
    for broker in deployment.brokers:
        found = running.get(broker.name)
        if found is None:
            continue
        if found.node_id != str(broker.settings.node_id):
            yield problem(
                broker.place,
                f"what runs at its address is broker {found.node_id} and not {broker.settings.node_id}",
                "Another cluster has that port: choose another, or stop it",
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
                "Upgrade one broker after the other, all of them",
            )


def check_with_tools(deployment: Deployment) -> Iterator[Finding]:
    """The programs that will read these files judge them best, where they are installed."""
    for tool, command in _judges(deployment):
        if not _is_installed(command):
            deployment.unchecked.append(f"the files by {tool}: it is not installed here")
            continue
        try:
            done = subprocess.run(  # noqa: S603 (programs of the machine, that only look)
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
        lines = _complaints(done.stderr)
        yield from (warning(tool, line.rstrip("."), "Mend that") for line in lines if line.endswith(IGNORED))
        told = [line for line in lines if not line.endswith(IGNORED)]
        if done.returncode != 0 and (told or not done.stderr.strip()):
            yield problem(tool, (told or ["it refuses the files and says nothing"])[0].rstrip("."), "Mend that")


def _is_installed(command: list[str]) -> bool:
    """Compose is a plug-in of docker's command, which may lack it."""
    if shutil.which(command[0]) is None or command[:2] != ["docker", "compose"]:
        return shutil.which(command[0]) is not None
    asked = subprocess.run(
        ["docker", "compose", "version"],  # noqa: S607 (whichever the user has)
        capture_output=True,
        timeout=TOOL_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return asked.returncode == 0


def _complaints(text: str) -> list[str]:
    """What a tool says about the files; that our program is not there yet is told otherwise."""
    lines = [line.strip() for line in text.splitlines() if "level=warning" not in line]
    return [line for line in lines if line and "is not executable: No such file" not in line]


def _judges(deployment: Deployment) -> Iterator[tuple[str, list[str]]]:
    if deployment.kind == "compose":
        yield "docker compose config", ["docker", "compose", "config", "--quiet"]
    elif deployment.kind == "helm":
        yield "helm template", ["helm", "template", "check", "."]
    else:
        from ottla.cli.deploy.reading_systemd import unit_files  # noqa: PLC0415 (only of use here)

        units = [str(path.resolve()).replace("@.service", "@1.service") for path in unit_files(deployment.folder)]
        yield "systemd-analyze verify", ["systemd-analyze", "verify", "--man=no", *units]


def _running(deployment: Deployment) -> dict[str, Running]:
    """All at once: machines that do not answer are waited for together."""
    with ThreadPoolExecutor(THREADS_MAX) as threads:
        answers = threads.map(lambda broker: _ask_metrics(broker) or _ask_cluster(broker), deployment.brokers)
        return {
            broker.name: answer
            for broker, answer in zip(deployment.brokers, answers, strict=True)
            if answer is not None
        }


def _ask_cluster(broker: BrokerFacts) -> Running | None:
    """Who has the broker's port on this machine, if it speaks Kafka's protocol and asks nobody for a password."""
    for listener in broker.settings.advertised_listeners:
        if listener.protocol != "PLAINTEXT" or not is_here(listener.host) or is_free("", listener.port):
            continue
        host = bracketed(listener.host)
        try:
            with open_client(f"{host}:{listener.port}", {}, timeout_ms=ASK_MS, patience_ms=ASK_MS) as client:
                brokers = client.cluster().brokers
        except ClientError:
            continue
        told = (each.node_id for each in brokers if (each.host, each.port) == (listener.host, listener.port))
        return Running(str(next(told, "unknown")), "", 0.0)
    return None


def _ask_metrics(broker: BrokerFacts) -> Running | None:
    if broker.metrics_url is None:
        return None
    try:
        page = ask_page(broker.metrics_url, "/metrics", "", seconds_max=ASK_SECONDS)
        info = parse_metrics(page, 0.0, ("ottla_info",)).info()
        before = time.time()
        told = json.loads(ask_page(broker.metrics_url, CLOCK_PATH, "", seconds_max=ASK_SECONDS))["timestamp"]
        after = time.time()
    except (OperationError, ValueError, KeyError, TypeError):
        return None
    return Running(info.get("node_id", ""), info.get("version", ""), seconds_off(float(told), before, after))


def seconds_off(told: float, before: float, after: float) -> float:
    """How far another clock is off at least: it told whole seconds, at some moment between question and answer."""
    least, most = told - after, told + 1 - before
    return 0.0 if least <= 0 <= most else min(least, most, key=abs)


@cache
def resolve(host: str) -> tuple[str, ...] | None:
    """Its addresses; None for a name that nobody knows."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return tuple(dict.fromkeys(str(item[4][0]) for item in found))


@cache
def is_here(host: str) -> bool:
    """Whether a name is one of this machine: what is not cannot be bound."""
    return is_loopback(host) or any(_can_bind(address, 0) for address in resolve(host) or ())


def is_free(address: str, port: int) -> bool:
    return _can_bind(address, port) if address and not is_loopback(address) else _can_bind(address or "", port)


def _can_bind(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe_socket:
        probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe_socket.bind((address, port))
        except (OSError, OverflowError, UnicodeError):
            return False
    return True


def _may_write(path: Path, user: int | None) -> bool:
    if user is None:
        return os.access(path, os.W_OK)
    about = path.stat()
    if about.st_uid == user:
        return bool(about.st_mode & 0o200)
    return bool(about.st_mode & 0o002) or (about.st_gid == user and bool(about.st_mode & 0o020))


def _user(folder: Folder) -> str:
    return f"user {folder.user}" if folder.user is not None else "the service's user"
