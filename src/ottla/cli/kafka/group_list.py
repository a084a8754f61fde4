"""`kafka-groups.sh`: list groups of all types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_sentence
from ottla.cli.java.hash_order import hash_map_order
from ottla.cli.java.options import BOOTSTRAP, BROKER_LIST, COMMAND_CONFIG, KafkaOptions, Option, bootstrap_of
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.groups import CONSUMER_TYPE, GroupListing, list_groups
from ottla.protocol.messages.consumer_groups import CONSUMER

TOOL = "kafka-groups.sh"
SUMMARY = "List groups of all kinds."
WIDTH = 20
SHARE_TYPE, STREAMS_TYPE = "Share", "Streams"
TYPES = ("classic", "consumer", "share", "streams")
KINDS = ("consumer", "share", "streams")
OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    Option("list", "List the groups."),
    Option("group-type", "Only groups of this type: classic, consumer, share or streams.", "type"),
    Option("protocol", "Only groups with this protocol, such as consumer or connect.", "protocol"),
    Option("consumer", "Only groups of consumers, whether new, classic or without members ever."),
    Option("share", "Only share groups."),
    Option("streams", "Only streams groups."),
)
Filter = Callable[[GroupListing], bool]


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example="--list --consumer")
    bootstrap = bootstrap_of(options)
    if bootstrap is None:
        options.print_usage_and_exit("Missing required option(s) [bootstrap-server]")
    if not options.has("list"):
        options.print_usage_and_exit("Command must include exactly one action: --list.")
    group_type = options.text("group-type")
    if group_type is not None and group_type.lower() not in TYPES:
        warn("--group-type must be a valid group type.")
        return EXIT_FAILED
    for kind in KINDS:
        others = sorted((*(other for other in KINDS if other != kind), "group-type", "protocol"))
        options.check_invalid_args(kind, *others)
    try:
        with client_of_file(bootstrap, options.text("command-config")) as client:
            return _list(client, group_filter(options))
    except (ClientError, ToolError) as problem:
        text = java_sentence(problem) if isinstance(problem, ClientError) else problem
        print_line(f"Error while executing groups command : {text}")
        return EXIT_FAILED


def group_filter(options: KafkaOptions) -> Filter:
    """The filter for the requested groups."""
    group_type, protocol = (options.text("group-type") or "").lower(), options.text("protocol")
    if group_type or protocol is not None:
        return lambda group: (
            (not group_type or group.type.lower() == group_type)
            and (protocol is None or group.protocol_type == protocol)
        )
    if options.has("consumer"):
        return lambda group: group.protocol_type in (CONSUMER, "") or group.type == CONSUMER_TYPE
    if options.has("share") or options.has("streams"):
        wanted = SHARE_TYPE if options.has("share") else STREAMS_TYPE
        return lambda group: group.type == wanted
    return lambda _group: True


def _list(client: Client, is_wanted: Filter) -> int:
    groups = {group.group_id: group for group in list_groups(client)}
    ordered = [groups[group_id] for group_id in hash_map_order(list(groups))]
    for line in lines([group for group in ordered if is_wanted(group)]):
        print_line(line)
    return 0


def lines(groups: Sequence[GroupListing]) -> list[str]:
    rows = [(group.group_id, group.type, group.protocol_type) for group in groups]
    width = max((len(cell) for row in rows for cell in row), default=WIDTH)
    width = max(width, WIDTH)
    head = " ".join(cell.ljust(width) for cell in ("GROUP", "TYPE", "PROTOCOL"))
    return [head, *("".join(f"{cell:{width}} " for cell in row) for row in rows)]
