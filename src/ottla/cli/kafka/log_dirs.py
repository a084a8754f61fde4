"""`kafka-log-dirs.sh`: describe the log directories of brokers as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from ottla.base.errors import Error
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_class, run_reporting_errors
from ottla.cli.java.hash_order import hash_map_order, partition_order
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, KafkaOptions, Option, OptionError
from ottla.cli.terminal import print_line
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.log_dirs import LogDir, Replica, describe_log_dirs

TOOL = "kafka-log-dirs.sh"
SUMMARY = "Describe the log directories of brokers."
EXAMPLE = "--describe"
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("describe", "Describe the log folders. Required."),
    Option("topic-list", "Only these topics, separated by commas.", "topics"),
    Option("broker-list", "Only these brokers, such as 0,1,2.", "brokers"),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    options.check_required_args("bootstrap-server", "describe")

    def body() -> int:
        wanted = parse_brokers(options.text("broker-list") or "")
        topics = {name for name in (options.text("topic-list") or "").split(",") if name}
        bootstrap = options.text("bootstrap-server") or ""
        with client_of_file(bootstrap, options.text("command-config"), "log-dirs-tool") as client:
            _describe(client, wanted, topics)
        return 0

    return run_reporting_errors(body)


def _describe(client: Client, wanted: Sequence[int], topics: Collection[str]) -> None:
    live = sorted(Admin(client).live_brokers())
    brokers = existing_brokers(wanted, live)
    print("Querying brokers for log directories information")
    folders = describe_log_dirs(client, brokers)
    print(f"Received log directory information from brokers {','.join(map(str, brokers))}")
    print_line(as_json(folders, topics))


def existing_brokers(wanted: Sequence[int], living: Sequence[int]) -> list[int]:
    """The brokers to query: the named ones or all. Naming an offline broker is an error."""
    missing = sorted(set(wanted) - set(living))
    if missing:
        raise OptionError(
            f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, missing))}. "
            f"Current existent brokers: {','.join(map(str, living))}"
        )
    return sorted(set(wanted)) or list(living)


def as_json(folders: Mapping[int, Sequence[LogDir]], topics: Collection[str]) -> str:
    """The JSON text on one line, with keys in the order of Java's maps."""
    brokers = [{"broker": broker, "logDirs": _folders(found, topics)} for broker, found in folders.items()]
    return json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":"), ensure_ascii=False)


def parse_brokers(text: str) -> list[int]:
    found = []
    for part in text.split(","):
        try:
            found += [int(part)] if part else []
        except ValueError:
            raise OptionError(f'For input string: "{part}"') from None
    return found


def _folders(folders: Sequence[LogDir], topics: Collection[str]) -> list[dict[str, object]]:
    by_path = {folder.path: folder for folder in folders}
    return [
        {
            "partitions": _replicas(by_path[path].replicas, topics),
            "error": None if by_path[path].error is Error.NONE else java_class(by_path[path].error),
            "logDir": path,
        }
        for path in hash_map_order(by_path)
    ]


def _replicas(replicas: Sequence[Replica], topics: Collection[str]) -> list[dict[str, object]]:
    wanted = {item.partition: item for item in replicas if not topics or item.partition.topic in topics}
    return [
        {
            "partition": str(partition),
            "size": wanted[partition].size_bytes,
            "offsetLag": wanted[partition].offset_lag,
            "isFuture": wanted[partition].is_future,
        }
        for partition in partition_order(wanted)
    ]
