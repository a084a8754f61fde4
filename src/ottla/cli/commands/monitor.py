"""`ottla monitor`: evaluates consumer group lag, serves Burrow's HTTP API, and sends alerts."""

from __future__ import annotations

import asyncio
import os
import signal
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.bootstrap import default_bootstrap
from ottla.base.logs import LogOptions, start_logging, stop_logging
from ottla.cli.arguments import CONNECTION, Argument, Parser, flag, not_negative
from ottla.cli.client_settings import COMMAND_CONFIG_VARIABLE, load_properties
from ottla.cli.terminal import ToolError, UsageError, warn
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.monitor.config import ClusterEntry, FileEntry, MonitorConfig

EXAMPLES = """
ottla monitor
ottla monitor --bootstrap-server kafka:9092 --command-config client.properties --port 8000
ottla monitor --config monitor.yaml                      several clusters, alerts, mail, webhooks
curl http://127.0.0.1:8000/v3/kafka/default/consumer/billing/lag
"""
DEFAULT_CLUSTER = "default"
LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")
MISSING = "this needs packages that are not installed: pip install 'ottla[console]'"


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        from ottla.monitor.main import run_monitor  # noqa: PLC0415 (0.2 s)
    except ImportError as problem:
        raise ToolError(f"{MISSING} ({problem.name})") from None
    from ottla.monitor.alerts.ledger import AlertStore, AlertStoreError  # noqa: PLC0415
    from ottla.web.server import listen, listen_address  # noqa: PLC0415

    config = _read_config(options)
    _check_address(config)
    try:
        listener = listen(config.http.host, config.http.port)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise ToolError(f"cannot listen on {config.http.host}:{config.http.port}: {reason}") from None
    try:
        ledger = AlertStore(config.state) if config.state is not None else None
    except AlertStoreError as problem:
        raise UsageError(str(problem)) from None
    start_logging(LogOptions(level=options.log_level))
    address = listen_address(listener)
    names = ", ".join(f"{item.name} ({item.bootstrap})" for item in config.clusters)
    try:
        asyncio.run(run_monitor(config, listener, ledger, lambda: print(f"monitor of {names}: {address}", flush=True)))
    finally:
        stop_logging()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # shutdown is already in progress
    return 0


def _parser() -> Parser:
    return Parser(
        prog="ottla monitor",
        description="Watch consumer groups: lag, verdicts and alerts, with the HTTP API and the metrics of Burrow. "
        "SIGTERM and Ctrl-C stop it.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            Argument("--config", metavar="FILE", help="monitor.yaml: clusters, alerts and their channels"),
            Argument("--cluster", metavar="NAME", help=f"name of the cluster (default: {DEFAULT_CLUSTER})"),
            Argument("--host", metavar="ADDRESS", help="address to bind (default: 127.0.0.1, this machine only)"),
            Argument("--port", type=not_negative, metavar="N", help="for HTTP (default: 8000, as Burrow's; 0: any)"),
            Argument(
                "--allow-host",
                action="append",
                default=[],
                metavar="NAME",
                help="also answer requests for this host name",
            ),
            flag("--insecure", help="allow other machines: the API has no login, so every client may read it"),
            Argument("--log-level", choices=LEVELS, default="WARN", help="of the log on stderr (default: WARN)"),
        ),
    )


def _read_config(options: Namespace) -> MonitorConfig:
    """The configuration of the file, overridden by the command line."""
    import msgspec  # noqa: PLC0415 (start-up of other commands)

    from ottla.monitor.alerts.rule_entries import ConfigError  # noqa: PLC0415
    from ottla.monitor.config import FileEntry, read_config, settings_of  # noqa: PLC0415

    prefix = f"{options.config}: " if options.config else ""
    try:
        entry = read_config(_read(options.config), os.environ) if options.config else FileEntry()
        http = entry.http
        changed = {
            "host": options.host if options.host is not None else http.host,
            "port": options.port if options.port is not None else http.port,
            "allow_hosts": [*http.allow_hosts, *options.allow_host],
            "insecure": http.insecure or options.insecure,
        }
        entry = msgspec.structs.replace(entry, http=msgspec.structs.replace(http, **changed))
        config = settings_of(entry, _clusters(options, entry), load_properties)
        for cluster in config.clusters:
            cluster.check_properties()
    except ConfigError as problem:
        raise UsageError(f"{prefix}{problem}") from None
    except ClientError as problem:
        raise UsageError(str(problem)) from None
    if not 0 <= config.http.port < 65536:
        raise UsageError(f"{config.http.port} is not a port: it must be below 65536")
    return config


def _clusters(options: Namespace, entry: FileEntry) -> dict[str, ClusterEntry]:
    from ottla.monitor.config import ClusterEntry  # noqa: PLC0415

    given = getattr(options, "bootstrap_server", None)
    properties = getattr(options, "command_config", None)
    if entry.clusters and not given:
        if properties or options.cluster:
            raise UsageError("the file defines the clusters, including command-config of each")
        return entry.clusters
    if entry.clusters:
        raise UsageError("name the cluster in the file or with --bootstrap-server, not both")
    properties = properties or os.environ.get(COMMAND_CONFIG_VARIABLE) or ""
    name = options.cluster or DEFAULT_CLUSTER
    return {name: ClusterEntry(bootstrap_server=given or default_bootstrap(), command_config=properties)}


def _check_address(config: MonitorConfig) -> None:
    from ottla.web.hosts import LOOPBACK_NAMES  # noqa: PLC0415

    http = config.http
    if http.host in LOOPBACK_NAMES:
        return
    if not http.insecure:
        raise UsageError(
            f"other machines could read everything at {http.host}, as the API has no login: put a proxy with one in "
            "front of 127.0.0.1, or use --insecure"
        )
    warn(f"warning: every client that reaches {http.host}:{http.port} can read lags and group names without a login")


def _read(path: str) -> bytes:
    from ottla.monitor.config import FILE_BYTES_MAX  # noqa: PLC0415

    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
            mode = os.fstat(file.fileno()).st_mode
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if mode & 0o077 and (b"password" in data or b"secret" in data) and b"${" not in data:
        warn(f"warning: {path} contains a secret and is readable by other users: chmod 600 {path}, or use ${{file:…}}")
    return data
