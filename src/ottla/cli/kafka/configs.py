"""`kafka-configs.sh`: read and change the settings of topics, brokers, groups, users and so on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.cli.client_settings import SECRET_WORDS, client_of_file, load_properties
from ottla.cli.configs.config_entities import (
    CLIENTS,
    GROUPS,
    IPS,
    METRICS,
    TOPICS,
    USERS,
    Entities,
    alter_resource,
    check_command,
    describe_resources,
)
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
    is_legacy_zookeeper,
)
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, warn
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
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
    Option("all", "With --describe: all settings, including defaults."),
    Option(
        "entity-type",
        "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.",
        "type",
        is_repeatable=True,
    ),
    Option("entity-name", "Name of the topic, client, user, group, broker ...", "name", is_repeatable=True),
    Option("entity-default", "The default of all clients, users, brokers or addresses."),
    Option("add-config", "Settings to change: a=1,b=[2,3]", "settings"),
    Option("add-config-file", "File with settings to change.", "file"),
    Option("delete-config", "Settings to put back: a,b", "names", is_repeatable=True),
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
# A separator outside of square brackets.
_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_KEY = re.compile(r"[$a-zA-Z0-9._-]*")
_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")
HIDDEN = "[hidden]"


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    try:
        entities = check_command(options)
        if is_legacy_zookeeper(options) and entities.types == [USERS] and options.has("alter"):
            code = _alter_in_zookeeper(options, entities)
            if code is not None:
                return code
        bootstrap = bootstrap_of(options) or options.text("bootstrap-controller") or ""
        with client_of_file(bootstrap, options.text("command-config")) as client:
            return _alter(client, options, entities) if options.has("alter") else _describe(client, options, entities)
    except BrokerError as problem:
        is_of_plug_ins = entities.type not in (TOPICS, GROUPS, METRICS)  # these entities accept only known names
        words = " ".join(redact_arguments(arguments, options.text("add-config") or "", hides_unknown=is_of_plug_ins))
        text = f"Error while executing config command with args '{words}'\n{WRAPPER}{java_text(problem)}"
    except (ClientError, ToolError) as problem:
        text = str(problem)
    warn(text)
    return EXIT_FAILED


def _alter_in_zookeeper(options: KafkaOptions, entities: Entities) -> int | None:
    """Change users in ZooKeeper, which the first broker may need to start; None: use a broker instead."""
    from ottla.cli.configs.zookeeper_users import alter_users, reachable_zookeeper  # noqa: PLC0415 (rarely needed)

    added, deleted = _wanted(options)
    if any(key in LIMITS for key in (*added, *deleted)):
        return None
    address = reachable_zookeeper(options.text("zookeeper") or "")
    if address is None:
        return None
    alter_users(address, entities.name or "", added, deleted)
    print_line(f"Completed updating config for entity: user-principal '{entities.name}'.")
    return 0


def _describe(client: Client, options: KafkaOptions, entities: Entities) -> int:
    if entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quota_entities import describe_quotas_and_credentials  # noqa: PLC0415 (rarely needed)

        lines = describe_quotas_and_credentials(client, entities, is_legacy_zookeeper(options))
    else:
        lines = describe_resources(client, entities, options.has("all"), is_legacy_zookeeper(options))
    for line in lines:
        print_line(line)
    return 0


def _alter(client: Client, options: KafkaOptions, entities: Entities) -> int:
    added, deleted = _wanted(options)
    if entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quota_entities import alter_quotas_and_credentials  # noqa: PLC0415

        alter_quotas_and_credentials(client, entities, added, deleted)
    else:
        alter_resource(client, entities, added, deleted)
    print_line(completion_message(entities, is_legacy_zookeeper(options)))
    return 0


def _wanted(options: KafkaOptions) -> tuple[dict[str, str], list[str]]:
    """The settings to set and the settings to reset."""
    path = options.text("add-config-file")
    added = load_properties(path) if path is not None else parse_added(options.text("add-config") or "")
    for key in added:
        if not _KEY.fullmatch(key):
            # the rest may be part of a password
            shown = key if path is not None or may_be_shown(key) else (_KEY.match(key) or [""])[0]
            raise OptionError(f"Invalid character found for config key: {shown}")
    return added, [name.strip() for text in options.texts("delete-config") for name in text.split(",")]


def completion_message(entities: Entities, is_old: bool) -> str:
    single = entities.type.removesuffix("s")
    if is_old and entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quota_entities import legacy_entity_text, quota_entity  # noqa: PLC0415 (rarely needed)

        return f"Completed Updating config for entity: {legacy_entity_text(quota_entity(entities))}."
    if is_old:
        return f"Completed Updating config for entity: {single} '{entities.name}'."
    if entities.name:
        return f"Completed updating config for {single} {entities.name}."
    return f"Completed updating default config for {entities.type} in the cluster."


def parse_added(text: str) -> dict[str, str]:
    """Parse `a=1,b=[2,3]`: commas inside square brackets belong to the value."""
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


def redact_arguments(arguments: Sequence[str], added: str, *, hides_unknown: bool = True) -> list[str]:
    """The command line for an error message, without values that may be secrets."""
    shown = redact_settings(added, hides_unknown) if added else ""
    return [word.removesuffix(added) + shown if added and word.endswith(added) else word for word in arguments]


def redact_settings(text: str, hides_unknown: bool) -> str:
    try:
        added = parse_added(text)
    except OptionError:
        return HIDDEN
    public = {key for key, value in added.items() if may_be_shown(key, value, hides_unknown)}
    if public == added.keys():
        return text
    pairs = ((key, value if key in public else HIDDEN) for key, value in added.items())
    return ",".join(f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in pairs)


def may_be_shown(key: str, value: str = "", hides_unknown: bool = True) -> bool:
    """Whether a setting is known and not a password; an unknown setting may be one."""
    from ottla.base.broker_settings import find_key  # noqa: PLC0415 (only for an error)
    from ottla.base.resource_keys import ClientMetricsKeys, GroupResourceKeys  # noqa: PLC0415
    from ottla.base.topic_keys import TopicKeys  # noqa: PLC0415

    tables = (TopicKeys.keys, GroupResourceKeys.keys, ClientMetricsKeys.keys)
    known = find_key(key) or next((table[key] for table in tables if key in table), None)
    if known is not None:
        return not known.is_sensitive
    if key in LIMITS or value.upper() in _LEVELS:
        return True
    return not hides_unknown and not any(word in key.lower() for word in (*SECRET_WORDS, "user_", "scram"))
