"""`kafka-acls.sh`: list, add and remove ACLs.

Java's set order differs from run to run; ottla sorts the ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.base.security import SUPPORTED_OPERATIONS, Operation, PatternType, Permission
from ottla.base.text import escape_cell
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import WRAPPER, java_text
from ottla.cli.java.options import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    KafkaOptions,
    Option,
    OptionError,
    bootstrap_of_zookeeper,
)
from ottla.cli.terminal import EXIT_FAILED, print_line, stdin_bytes
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.acls.acl_entries import (
    CLUSTER,
    CONSUMER_OPERATIONS,
    IDEMPOTENT_OPERATIONS,
    PRODUCER_OPERATIONS,
    RESOURCES,
    AclsByResource,
    acl_entries,
    acl_filter,
    is_specific,
    operations_for_role,
    parse_operation,
    parse_principal,
)
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern

TOOL: Final = "kafka-acls.sh"
SUMMARY: Final = "This tool helps to manage acls on kafka."
EXAMPLE: Final = "--add --allow-principal User:alice --consumer --topic orders --group billing"
OPTIONS: Final = (
    BOOTSTRAP,
    Option("bootstrap-controller", "Controllers to connect to instead of brokers.", "servers"),
    Option("authorizer-properties", "Deprecated: zookeeper.connect=host:2181.", "pairs", is_repeatable=True),
    Option("authorizer", "Old option, without effect.", "class"),
    COMMAND_CONFIG._replace(bare_value=""),
    Option("add", "Add rules."),
    Option("remove", "Remove rules."),
    Option("list", "List rules."),
    Option("topic", "A topic; * means all of them.", "name", is_repeatable=True),
    Option("group", "A group; * means all of them.", "name", is_repeatable=True),
    Option("cluster", "The cluster."),
    Option("transactional-id", "A transactional id; * means all of them.", "id", is_repeatable=True),
    Option("delegation-token", "A delegation token; * means all of them.", "id", is_repeatable=True),
    Option("user-principal", "A user as a resource.", "principal", is_repeatable=True),
    Option("resource-pattern-type", "literal or prefixed; to list and remove also any and match.", "type"),
    Option(
        "operation", "Allowed or denied operation: Read, Write, Create ... By default All.", "name", is_repeatable=True
    ),
    Option("allow-principal", "Principal to allow: User:name.", "principal", is_repeatable=True),
    Option("deny-principal", "Principal to deny. Deny overrides allow.", "principal", is_repeatable=True),
    Option("allow-host", "Host to allow; by default any.", "host", is_repeatable=True),
    Option("deny-host", "Host to deny; by default any.", "host", is_repeatable=True),
    Option("principal", "With --list: only rules of this principal.", "principal", is_repeatable=True, bare_value=""),
    Option("producer", "The operations of a producer: Write, Describe and Create on the topic."),
    Option("consumer", "The operations of a consumer: Read and Describe on the topic, Read on the group."),
    Option("idempotent", "With --producer: also IdempotentWrite on the cluster."),
    Option("force", "Remove without confirmation."),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    check(options)
    bootstrap = options.text("bootstrap-server") or options.text("bootstrap-controller") or _of_zookeeper(options)
    try:
        with client_of_file(bootstrap, options.text("command-config") or None) as client:
            if options.has("add"):
                _add(client, options)
            elif options.has("remove"):
                _remove(client, options)
            else:
                _list(client, options)
    except (ClientError, OptionError) as problem:
        text = java_text(problem) if isinstance(problem, ClientError) else str(problem)
        print_line(f"Error while executing ACL command: {text}")
        if isinstance(problem, ClientError):
            print_line(f"{WRAPPER}{text}")
            print()
        return EXIT_FAILED
    return 0


def check(options: KafkaOptions) -> None:
    """Check the options in Kafka's order."""
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        options.print_usage_and_exit("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not any(map(options.has, ("bootstrap-server", "bootstrap-controller", "authorizer-properties"))):
        options.print_usage_and_exit("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(map(options.has, ("add", "remove", "list"))) != 1:
        options.print_usage_and_exit("Command must include exactly one action: --list, --add, --remove. ")
    for name in ("producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal"):
        options.check_invalid_args("list", name)
    for role in ("producer", "consumer"):
        options.check_invalid_args(role, "operation", "deny-principal", "deny-host")
    if options.has("principal") and not options.has("list"):
        options.print_usage_and_exit("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        options.print_usage_and_exit("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        options.print_usage_and_exit("The --idempotent option is only available if --producer is set")
    is_lonely = not options.has("topic") or not options.has("group")
    has_others = not options.has("producer") and (options.has("cluster") or options.has("transactional-id"))
    if options.has("consumer") and (is_lonely or has_others):
        options.print_usage_and_exit(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def _of_zookeeper(options: KafkaOptions) -> str:
    for pair in options.texts("authorizer-properties"):
        name, _, value = pair.partition("=")
        if name.strip() == "zookeeper.connect":
            return bootstrap_of_zookeeper(value.strip())
    return options.print_usage_and_exit("One of --bootstrap-server or --bootstrap-controller must be specified")


# ---- requested entries


def pattern_type_of(options: KafkaOptions) -> PatternType:
    text = options.text("resource-pattern-type") or PatternType.LITERAL.name
    found = PatternType.__members__.get(text.upper(), PatternType.UNKNOWN)
    if found is PatternType.UNKNOWN:
        raise OptionError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    return found


def resource_patterns(options: KafkaOptions, *, is_needed: bool) -> list[ResourcePattern]:
    pattern_type = pattern_type_of(options)
    found = [
        ResourcePattern(kind, name.strip(), pattern_type)
        for option, kind in RESOURCES.items()
        for name in options.texts(option)
    ]
    if pattern_type is PatternType.LITERAL and (options.has("cluster") or options.has("idempotent")):
        found.append(CLUSTER)
    if not found and is_needed:
        options.print_usage_and_exit(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return list(dict.fromkeys(found))


def requested_entries(options: KafkaOptions) -> AclsByResource:
    patterns = resource_patterns(options, is_needed=True)
    requested: AclsByResource = {}
    if not options.has("producer") and not options.has("consumer"):
        operations = [_operation(text) for text in options.texts("operation")] or [Operation.ALL]
        requested = {pattern: entries(options, operations) for pattern in patterns}
    if options.has("producer"):
        for pattern, needed in operations_for_role(patterns, PRODUCER_OPERATIONS).items():
            requested[pattern] = entries(options, needed)
        if options.has("idempotent"):
            requested[CLUSTER] = entries(options, IDEMPOTENT_OPERATIONS)
    if options.has("consumer"):
        for pattern, needed in operations_for_role(patterns, CONSUMER_OPERATIONS).items():
            requested.setdefault(pattern, set()).update(entries(options, needed))
    _check_operations(options, requested)
    return requested


def entries(options: KafkaOptions, operations: Iterable[Operation]) -> set[AccessControlEntry]:
    operations = list(operations)
    found: set[AccessControlEntry] = set()
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals = [_principal(text) for text in options.texts(f"{word}-principal")]
        hosts = [text.strip() for text in options.texts(f"{word}-host")]
        found |= acl_entries(principals, hosts, operations, permission)
    return found


def _operation(text: str) -> Operation:
    try:
        return parse_operation(text)
    except ValueError:
        return Operation.UNKNOWN  # rejected later: the resource does not support it


def _principal(text: str) -> str:
    try:
        return parse_principal(text)
    except ValueError as problem:
        raise OptionError(str(problem)) from None


def _check_operations(options: KafkaOptions, wishes: AclsByResource) -> None:
    for pattern, wanted in wishes.items():
        valid = {*SUPPORTED_OPERATIONS[pattern.resource_type], Operation.ALL}
        if any(entry.operation not in valid for entry in wanted):
            names = ", ".join(each.name for each in sorted(valid))
            options.print_usage_and_exit(
                f"ResourceType {pattern.resource_type.name} only supports operations [{names}]"
            )


# ---- actions


def _add(client: Client, options: KafkaOptions) -> None:
    pattern_type = pattern_type_of(options)
    if not is_specific(pattern_type):
        options.print_usage_and_exit(
            f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls."
        )
    requested = requested_entries(options)
    if not all(requested.values()):
        options.print_usage_and_exit(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    for pattern, wanted in requested.items():
        existing = set(describe_acls(client, acl_filter(pattern)))
        bindings = [AclBinding(pattern, entry) for entry in sorted(wanted)]
        for binding in bindings:
            if binding in existing:
                print_line(f"Acl {binding} already exists.")
        new = [binding for binding in bindings if binding not in existing]
        if new:
            print_line(f"Adding ACLs for resource `{pattern}`: ")
            print(f" {entry_lines(each.entry for each in new)}\n")
            create_acls(client, new)


def _remove(client: Client, options: KafkaOptions) -> None:
    for pattern, wanted in requested_entries(options).items():
        if not wanted:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        else:
            question = (
                f"Are you sure you want to remove ACLs: \n {entry_lines(wanted)}\n from resource filter "
                f"`{pattern}`? (y/n)"
            )
        if _is_sure(options, question):
            delete_acls(client, [acl_filter(pattern, entry) for entry in sorted(wanted)] or [acl_filter(pattern)])


def _is_sure(options: KafkaOptions, question: str) -> bool:
    if options.has("force"):
        return True
    print(question, flush=True)
    return stdin_bytes().readline().strip().lower() == b"y"


def _list(client: Client, options: KafkaOptions) -> None:
    filters = [acl_filter(pattern) for pattern in resource_patterns(options, is_needed=False)] or [AclFilter()]
    found: AclsByResource = {}
    for wanted in filters:
        for pattern, entry in describe_acls(client, wanted):
            found.setdefault(pattern, set()).add(entry)
    principals = list(dict.fromkeys(_principal(text) for text in options.texts("principal")))
    if not principals:
        _print(found)
    for principal in principals:
        print_line(f"ACLs for principal `{principal}`")
        mine = {pattern: {each for each in found[pattern] if each.principal == principal} for pattern in found}
        _print({pattern: wanted for pattern, wanted in mine.items() if wanted})


def _print(found: AclsByResource) -> None:
    for pattern in sorted(found):
        print_line(f"Current ACLs for resource `{pattern}`:")
        print(f"{entry_lines(found[pattern])}\n")


def entry_lines(wanted: Iterable[AccessControlEntry]) -> str:
    return "\n".join(f"\t{escape_cell(str(entry))}" for entry in sorted(wanted))
