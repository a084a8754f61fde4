"""`kafka-client-metrics.sh`: subscriptions to the metrics of clients (KIP-714)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from ottla.base.names import id_text
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, KafkaOptions, Option, OptionError
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, warn
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs, describe_configs, resources_with_configs
from ottla.client.errors import ClientError

TOOL = "kafka-client-metrics.sh"
SUMMARY = "Show and change which metrics clients push to the brokers."
ACTIONS = ("alter", "delete", "describe", "list")
KEYS = {"interval": "interval.ms", "match": "match", "metrics": "metrics"}
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("list", "List the names of the subscriptions."),
    Option("describe", "Show one subscription, or all."),
    Option("alter", "Create or change a subscription."),
    Option("delete", "Delete a subscription."),
    Option("name", "Name of the subscription.", "name"),
    Option("generate-name", "With --alter: generate a name."),
    Option("interval", "Milliseconds between two pushes of a client; empty: the default.", "ms"),
    Option("match", "Which clients: name=pattern, commas between several; empty: all.", "selectors"),
    Option("metrics", "Prefixes of the names of the metrics, commas between several; * is all.", "prefixes"),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments)
    try:
        _check(options)
    except OptionError as problem:
        warn(str(problem))
        return EXIT_FAILED
    try:
        bootstrap = options.text("bootstrap-server") or ""
        with client_of_file(bootstrap, options.text("command-config")) as client:
            _run_action(client, options)
    except (ClientError, ToolError) as problem:
        print_line(f"Error while executing client metrics command : {problem}")
        return EXIT_FAILED
    return 0


def _check(options: KafkaOptions) -> None:
    if sum(map(options.has, ACTIONS)) != 1:
        options.print_usage_and_exit(
            f"Command must include exactly one action: --{', --'.join(ACTIONS[:3])} or --list."
        )
    options.check_required_args("bootstrap-server")
    options.check_invalid_args("list", "name")
    for action in ("list", "describe", "delete"):
        options.check_invalid_args(action, "generate-name", "metrics", "interval", "match")
    if options.has("alter") and options.has("name") == options.has("generate-name"):
        raise OptionError("One of --name or --generate-name must be specified with --alter.")
    if options.has("delete") and not options.has("name"):
        raise OptionError("A client metrics resource name must be specified with --delete.")
    interval = (options.text("interval") or "").removeprefix("-")
    if interval and not (interval.isascii() and interval.isdecimal()):
        raise OptionError("Invalid interval value. Enter an integer, or leave empty to reset.")


def _run_action(client: Client, options: KafkaOptions) -> None:
    name = options.text("name")
    if options.has("list"):
        for found in subscription_names(client):
            print_line(found)
    elif options.has("describe"):
        _describe(client, name)
    elif options.has("delete"):
        alter_configs(client, Resource.CLIENT_METRICS, name or "", {}, list(KEYS.values()))
        print_line(f"Deleted client metrics config for {name}.")
    else:
        _alter(client, name or id_text(uuid.uuid4()), options)


def subscription_names(client: Client) -> list[str]:
    return resources_with_configs(client, Resource.CLIENT_METRICS)


def _describe(client: Client, name: str | None) -> None:
    existing = subscription_names(client)
    if name is not None and name not in existing:
        print_line(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    for found, configs in describe_configs(client, Resource.CLIENT_METRICS, [name] if name else existing).items():
        print_line(f"Client metrics configs for {found} are:")
        for config in configs:
            print_line(f"  {config.name}={config.value}")


def _alter(client: Client, name: str, options: KafkaOptions) -> None:
    """Change a subscription; an empty value resets a setting to its default."""
    given = {key: options.text(option) or "" for option, key in KEYS.items() if options.has(option)}
    changed = {key: value for key, value in given.items() if value}
    alter_configs(client, Resource.CLIENT_METRICS, name, changed, [key for key in given if key not in changed])
    print_line(f"Altered client metrics config for {name}.")
