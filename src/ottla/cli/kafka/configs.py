"""`kafka-configs.sh`: read and change the settings of topics, brokers, groups, users and so on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.cli.client_settings import client_of_file, load_properties
from ottla.cli.configs.entities import CLIENTS, IPS, USERS, Entities, check_command
from ottla.cli.configs.report import alter_resource, describe_resources
from ottla.cli.java.errors import WRAPPER, java_text
from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    ZOOKEEPER,
    KafkaOptions,
    Option,
    OptionError,
    bootstrap_of,
    is_of_old,
)
from ottla.cli.terminal import EXIT_FAILED, ToolError, say, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError
from ottla.quotas.entities import KEYS as LIMITS

TOOL = "kafka-configs.sh"
SUMMARY = "Show and change settings while the cluster runs."
EXAMPLE = "--alter --topic orders --add-config retention.ms=86400000"
OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    COMMAND_CONFIG,
    Option("bootstrap-controller", "Controllers to connect to instead of brokers.", "servers"),
    Option("describe", "Show settings."),
    Option("alter", "Change settings."),
    Option("all", "With --describe: all settings, also those that nobody changed."),
    Option(
        "entity-type",
        "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.",
        "type",
        many=True,
    ),
    Option("entity-name", "Name of the topic, client, user, group, broker ...", "name", many=True),
    Option("entity-default", "The default of all clients, users, brokers or addresses."),
    Option("add-config", "Settings to change: a=1,b=[2,3]", "settings"),
    Option("add-config-file", "File with settings to change.", "file"),
    Option("delete-config", "Settings to put back: a,b", "names", many=True),
    Option("topic", "A topic.", "name"),
    Option("client", "A client id.", "id"),
    Option("client-defaults", "The default of all clients."),
    Option("user", "A user.", "name"),
    Option("user-defaults", "The default of all users."),
    Option("broker", "A broker.", "id"),
    Option("broker-defaults", "The default of all brokers."),
    Option("broker-logger", "The logger levels of a broker.", "id"),
    Option("ip", "An address.", "address"),
    Option("ip-defaults", "The default of all addresses."),
    Option("group", "A group.", "id"),
    Option("client-metrics", "A subscription to metrics of clients.", "name"),
)
# A comma or an equals sign that is not inside square brackets.
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")
_PASSWORD = re.compile(r"((?:password|secret)[^=,\s]*=)[^,\]\s]*", re.IGNORECASE)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    try:
        entities = check_command(options)
        if is_of_old(options) and entities.types == [USERS] and options.has("alter"):
            code = _alter_in_zookeeper(options, entities)
            if code is not None:
                return code
        bootstrap = bootstrap_of(options) or options.text("bootstrap-controller") or ""
        with client_of_file(bootstrap, options.text("command-config")) as client:
            return _alter(client, options, entities) if options.has("alter") else _describe(client, options, entities)
    except RefusedError as problem:
        words = _PASSWORD.sub(r"\1[hidden]", " ".join(arguments))
        text = f"Error while executing config command with args '{words}'\n{WRAPPER}{java_text(problem)}"
    except (ClientError, ToolError) as problem:
        text = str(problem)
    warn(text)
    return EXIT_FAILED


def _alter_in_zookeeper(options: KafkaOptions, entities: Entities) -> int | None:
    """Passwords of users, which the first broker may need to start; None: a broker is to be asked."""
    from ottla.cli.configs.zookeeper_users import alter_users, zookeeper_of  # noqa: PLC0415 (rarely needed)

    added, deleted = _wanted(options)
    if any(key in LIMITS for key in (*added, *deleted)):
        return None
    address = zookeeper_of(options.text("zookeeper") or "")
    if address is None:
        return None
    alter_users(address, entities.name or "", added, deleted)
    print(f"Completed updating config for entity: user-principal '{entities.name}'.")
    return 0


def _describe(client: Client, options: KafkaOptions, entities: Entities) -> int:
    if entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quotas import describe_quotas_and_credentials  # noqa: PLC0415 (rarely needed)

        lines = describe_quotas_and_credentials(client, entities, is_of_old(options))
    else:
        lines = describe_resources(client, entities, options.has("all"), is_of_old(options))
    for line in lines:
        say(line)
    return 0


def _alter(client: Client, options: KafkaOptions, entities: Entities) -> int:
    added, deleted = _wanted(options)
    if entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quotas import alter_quotas_and_credentials  # noqa: PLC0415

        alter_quotas_and_credentials(client, entities, added, deleted)
    else:
        alter_resource(client, entities, added, deleted)
    print(done(entities, is_of_old(options)))
    return 0


def _wanted(options: KafkaOptions) -> tuple[dict[str, str], list[str]]:
    """What shall be set, and what shall be put back."""
    path = options.text("add-config-file")
    added = load_properties(path) if path is not None else parse_added(options.text("add-config") or "")
    for key in added:
        if not _KEY.fullmatch(key):
            raise OptionError(f"Invalid character found for config key: {key}")
    return added, [name.strip() for text in options.texts("delete-config") for name in text.split(",")]


def done(entities: Entities, is_old: bool) -> str:
    single = entities.type.removesuffix("s")
    if is_old and entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quotas import entity_of, old_entity_text  # noqa: PLC0415 (rarely needed)

        return f"Completed Updating config for entity: {old_entity_text(entity_of(entities))}."
    if is_old:
        return f"Completed Updating config for entity: {single} '{entities.name}'."
    if entities.name:
        return f"Completed updating config for {single} {entities.name}."
    return f"Completed updating default config for {entities.type} in the cluster."


def parse_added(text: str) -> dict[str, str]:
    """`a=1,b=[2,3]`: commas separate, except inside square brackets."""
    if not text:
        return {}
    added = {}
    for pair in re.split("," + _OUTSIDE_BRACKETS, text):
        parts = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            raise OptionError(
                "requirement failed: Invalid entity config: all configs to be added must be in the format "
                '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        added[parts[0].strip()] = re.sub(r"\[?\]?", "", parts[1]).strip()
    return added
