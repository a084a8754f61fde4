"""`ottla broker`: runs one broker in the foreground, from a server.properties file.

Precedence: --override, then the environment, then the file, then Kafka's defaults. KAFKA_ variables are settings only
with --from-environment, because a developer's shell may contain unrelated ones.

In a container, CUSTOM_INIT_SCRIPT (shell commands) and the *.sh files in /docker-entrypoint-initdb.d run before the
settings are read, at every start and in the order of their names. Executable files are run, others are sourced. They
may write the settings file, and their exported variables count as environment variables. Their output goes to the log.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.base.lazy_modules import make_lazy
from ottla.cli.arguments import Argument, Parser, flag, parse_pairs
from ottla.cli.processes.cluster_defaults import PROCESSES_MAX, count_or_auto_type
from ottla.cli.terminal import ToolError, UsageError

if TYPE_CHECKING:
    from ottla.base.broker_settings import BrokerSettings


CLUSTER_ID_VARIABLES = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CFG_CLUSTER_ID")

# Rarely used modules: 10 MB, and a third of the start time. asyncio itself imports the first two.
SELDOM_USED = frozenset({"asyncio.sslproto", "ssl", "cramjam", "hashlib", "hmac", "secrets", "shutil", "sqlite3"})
EXAMPLES = """
ottla broker --config server.properties
ottla broker --config server.properties --override log.dirs=/data/ottla --override num.partitions=3
ottla broker --config server.properties --processes auto        one broker for each core, with ZooKeeper
KAFKA_LOG_RETENTION_HOURS=24 ottla broker --from-environment
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.processes is not None:
        if options.from_environment or options.stop_on_eof:
            raise UsageError("--processes is for a machine: in containers, and as a child, a broker runs alone")
        from ottla.cli.processes.multi_process import run_processes  # noqa: PLC0415 (most brokers run alone)

        return run_processes(options.config, parse_pairs(options.override, allow_bare=False), options.processes)
    if options.stop_on_eof:
        threading.Thread(target=stop_on_eof, name="stdin", daemon=True).start()
    overrides = parse_pairs(options.override, allow_bare=False)
    if options.from_environment:
        return start(options.config, overrides, run_init_scripts(os.environ), is_container=True)
    return start(options.config, overrides)


def _parser() -> Parser:
    return Parser(
        prog="ottla broker",
        description="Run one broker in the foreground, or several of one machine. SIGTERM and Ctrl-C stop it in order.",
        examples=EXAMPLES,
        arguments=(
            Argument("--config", metavar="FILE", help="server.properties; without it Kafka's defaults"),
            Argument(
                "--override",
                action="append",
                default=[],
                metavar="KEY=VALUE",
                help="wins over the file; can be repeated",
            ),
            flag(
                "--from-environment",
                help="for containers: run CUSTOM_INIT_SCRIPT, then use KAFKA_... variables as settings",
            ),
            flag("--stop-on-eof", help="stop when stdin ends, for a program that runs a broker as its child"),
            Argument(
                "--processes",
                type=count_or_auto_type("processes", PROCESSES_MAX),
                metavar="N",
                help="run several brokers of a cluster, with consecutive ids, ports and folders; auto: one per core",
            ),
        ),
    )


def start(
    config: str | None,
    overrides: Mapping[str, str],
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    is_container: bool = False,
) -> int:
    """Read the settings and run the broker until it is stopped; returns the exit code."""
    from ottla.base.broker_settings import load_broker_settings  # noqa: PLC0415 (help needs none of it)
    from ottla.base.settings import SettingsError  # noqa: PLC0415
    from ottla.cli.processes.multi_process_settings import check_single_broker_folders  # noqa: PLC0415

    try:
        settings = load_broker_settings(config, overrides, environment=environment, is_container=is_container)
    except SettingsError as problem:
        raise ToolError(str(problem)) from None
    check_single_broker_folders(settings.log_dirs)
    if is_container:
        claim_folders(settings, environment)
    return load_broker()(settings)


def load_broker() -> Callable[[BrokerSettings], int]:
    """The function that runs a broker; rarely used modules are loaded on first use."""
    make_lazy(SELDOM_USED)
    gc.disable()  # import creates no garbage, so collections would be wasted
    from ottla.broker.main import run_broker  # noqa: PLC0415 (help needs none of it)

    gc.enable()
    return run_broker


def claim_folders(settings: BrokerSettings, environment: Mapping[str, str]) -> None:
    """Give the cluster id in a variable to unformatted folders, as images of Kafka do."""
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
    """Wait for the end of stdin, then send SIGTERM to this process: the parent process is gone."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


# ---- init scripts
VARIABLE: Final = "CUSTOM_INIT_SCRIPT"
FOLDER: Final = Path("/docker-entrypoint-initdb.d")
SHELL: Final = "/bin/sh"
# Standard output carries the resulting environment: the broker's own stdout begins with its ready line.
FRAME: Final = "exec 3>&1 1>&2; set -e\n{commands}\nexec 1>&3 3>&-; exec env -0\n"


def run_init_scripts(environment: Mapping[str, str], folder: Path = FOLDER) -> dict[str, str]:
    """Run the init scripts and return the environment that they leave. Raises ToolError if one fails."""
    result = dict(environment)
    if environment.get(VARIABLE):
        result = _run(f'eval "${VARIABLE}"', VARIABLE, result)
    for path in sorted(folder.glob("*.sh")) if folder.is_dir() else ():
        command = '"$OTTLA_INIT_SCRIPT"' if os.access(path, os.X_OK) else '. "$OTTLA_INIT_SCRIPT"'
        result = _run(command, str(path), {**result, "OTTLA_INIT_SCRIPT": str(path)})
        result.pop("OTTLA_INIT_SCRIPT", None)
    return result


def _run(commands: str, name: str, environment: Mapping[str, str]) -> dict[str, str]:
    done = subprocess.run(  # noqa: S603 (setting a container's environment implies the right to run commands in it)
        [SHELL, "-c", FRAME.format(commands=commands)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise ToolError(f"{name} ended with exit code {done.returncode}: the broker was not started")
    pairs = (item.partition("=") for item in done.stdout.decode("utf-8", "surrogateescape").split("\0") if item)
    return {key: value for key, _, value in pairs}
