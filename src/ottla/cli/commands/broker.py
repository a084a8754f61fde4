"""`ottla broker`: one broker in the foreground, from a server.properties file.

What counts, strongest first: --override, the environment, the file, Kafka's defaults. KAFKA_ variables are settings
only with --from-environment: a developer's shell may hold all kinds of them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.base.late_modules import load_late
from ottla.cli.arguments import Parser, parse_pairs
from ottla.cli.running.cores import PROCESSES_MAX, count_or_auto
from ottla.cli.running.init_scripts import run_init_scripts
from ottla.cli.running.process_folders import check_alone
from ottla.cli.terminal import ToolError, UsageError

if TYPE_CHECKING:
    from ottla.base.broker_settings import BrokerSettings

CLUSTER_ID_VARIABLES = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CFG_CLUSTER_ID")

# Most brokers never look into these: 10 MB, and a third of the time to start. asyncio alone imports the first two.
SELDOM_USED = frozenset({"asyncio.sslproto", "ssl", "cramjam", "hashlib", "hmac", "secrets", "shutil", "sqlite3"})
EXAMPLES = """
ottla broker --config server.properties
ottla broker --config server.properties --override log.dirs=/data/ottla --override num.partitions=3
ottla broker --config server.properties --processes auto        one broker for each core, with ZooKeeper
KAFKA_LOG_RETENTION_HOURS=24 ottla broker --from-environment
"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="ottla broker",
        description="Run one broker in the foreground, or several of one machine. SIGTERM and Ctrl-C stop it in order.",
        examples=EXAMPLES,
    )
    parser.add_argument("--config", metavar="FILE", help="server.properties; without it Kafka's defaults")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="wins over the file; can be repeated"
    )
    parser.add_argument(
        "--from-environment",
        action="store_true",
        help="for containers: run CUSTOM_INIT_SCRIPT, then take KAFKA_... variables as settings",
    )
    parser.add_argument(
        "--stop-on-eof", action="store_true", help="stop when stdin ends: for a program that runs a broker as its child"
    )
    parser.add_argument(
        "--processes",
        type=count_or_auto("processes", PROCESSES_MAX),
        metavar="N",
        help="so many brokers of a cluster: ids, ports and folders count on from the file's; auto: one for each core",
    )
    options = parser.parse_args(arguments)
    if options.processes is not None:
        if options.from_environment or options.stop_on_eof:
            raise UsageError("--processes is for a machine: in containers, and as a child, a broker runs alone")
        from ottla.cli.running.processes import run_processes  # noqa: PLC0415 (most brokers run alone)

        return run_processes(options.config, parse_pairs(options.override, allow_bare=False), options.processes)
    if options.stop_on_eof:
        threading.Thread(target=stop_on_eof, name="stdin", daemon=True).start()
    overrides = parse_pairs(options.override, allow_bare=False)
    if options.from_environment:
        return start(options.config, overrides, run_init_scripts(os.environ), is_container=True)
    return start(options.config, overrides)


def start(
    config: str | None,
    overrides: Mapping[str, str],
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    is_container: bool = False,
) -> int:
    """Read the settings and run until somebody stops the broker; returns the exit code."""
    from ottla.base.broker_settings import load_broker_settings  # noqa: PLC0415 (help needs none of it)
    from ottla.base.settings import SettingsError  # noqa: PLC0415

    try:
        settings = load_broker_settings(config, overrides, environment=environment, is_container=is_container)
    except SettingsError as problem:
        raise ToolError(str(problem)) from None
    check_alone(settings.log_dirs)
    if is_container:
        claim_folders(settings, environment)
    return load_broker()(settings)


def load_broker() -> Callable[[BrokerSettings], int]:
    """What runs a broker, without what most brokers never use."""
    load_late(SELDOM_USED)
    gc.disable()  # of what is loaded nothing is garbage
    from ottla.broker.main import run_broker  # noqa: PLC0415 (help needs none of it)

    gc.enable()
    return run_broker


def claim_folders(settings: BrokerSettings, environment: Mapping[str, str]) -> None:
    """Images of Kafka take the cluster's id from a variable and give it to folders that have none yet."""
    cluster_id = next((environment[name] for name in CLUSTER_ID_VARIABLES if environment.get(name)), None)
    if cluster_id is None:
        return
    from ottla.cli.java.options import OptionError  # noqa: PLC0415
    from ottla.cli.metadata.storage_folders import format_folder, unformatted  # noqa: PLC0415

    try:
        for path in unformatted(settings.log_dirs, settings.node_id, cluster_id, ignore_formatted=True):
            format_folder(path, settings.node_id, cluster_id, is_kraft=bool(settings.process_roles))
    except OptionError as problem:
        raise ToolError(str(problem).removeprefix("java.lang.RuntimeException: ")) from None


def stop_on_eof() -> None:
    """Wait for the end of stdin, then stop this process as an operator would. Whoever holds the other end is gone."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
