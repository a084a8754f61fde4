"""`kafka-acls.sh`: list, add and remove access rules.

Java prints its sets in an order that differs from run to run; here rules are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.base.security import OPERATIONS_OF, Operation, PatternType, Permission
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
from ottla.cli.terminal import EXIT_FAILED, say, stdin_bytes
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.acls.wishes import (
    CLUSTER,
    CONSUMER,
    IDEMPOTENT,
    PRODUCER,
    RESOURCES,
    Wishes,
    entries_of,
    filter_of,
    for_role,
    is_specific,
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
    Option("authorizer-properties", "Old way to reach a cluster: zookeeper.connect=host:2181.", "pairs", many=True),
    Option("authorizer", "Old option, without effect.", "class"),
    COMMAND_CONFIG._replace(alone=""),
    Option("add", "Add rules."),
    Option("remove", "Remove rules."),
    Option("list", "List rules."),
    Option("topic", "A topic; * means all of them.", "name", many=True),
    Option("group", "A group; * means all of them.", "name", many=True),
    Option("cluster", "The cluster."),
    Option("transactional-id", "A transactional id; * means all of them.", "id", many=True),
    Option("delegation-token", "A delegation token; * means all of them.", "id", many=True),
    Option("user-principal", "A user as a resource.", "principal", many=True),
    Option("resource-pattern-type", "literal or prefixed; to list and remove also any and match.", "type"),
    Option("operation", "What is allowed or denied: Read, Write, Create ... By default All.", "name", many=True),
    Option("allow-principal", "Who is allowed something: User:name.", "principal", many=True),
    Option("deny-principal", "Who is denied something. This counts more than what is allowed.", "principal", many=True),
    Option("allow-host", "Address from which it is allowed; by default any.", "host", many=True),
    Option("deny-host", "Address from which it is denied; by default any.", "host", many=True),
    Option("principal", "With --list: only rules of this principal.", "principal", many=True, alone=""),
    Option("producer", "What a producer needs: Write, Describe and Create on the topic."),
    Option("consumer", "What a consumer needs: Read and Describe on the topic, Read on the group."),
    Option("idempotent", "With --producer: also IdempotentWrite on the cluster."),
    Option("force", "Do not ask before something is removed."),
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
        print(f"Error while executing ACL command: {text}")
        if isinstance(problem, ClientError):
            print(f"{WRAPPER}{text}\n")
        return EXIT_FAILED
    return 0


def check(options: KafkaOptions) -> None:
    """The order of the checks is Kafka's."""
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        options.refuse("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not any(map(options.has, ("bootstrap-server", "bootstrap-controller", "authorizer-properties"))):
        options.refuse("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(map(options.has, ("add", "remove", "list"))) != 1:
        options.refuse("Command must include exactly one action: --list, --add, --remove. ")
    for name in ("producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal"):
        options.refuse_with("list", name)
    for role in ("producer", "consumer"):
        options.refuse_with(role, "operation", "deny-principal", "deny-host")
    if options.has("principal") and not options.has("list"):
        options.refuse("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        options.refuse("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        options.refuse("The --idempotent option is only available if --producer is set")
    is_lonely = not options.has("topic") or not options.has("group")
    has_others = not options.has("producer") and (options.has("cluster") or options.has("transactional-id"))
    if options.has("consumer") and (is_lonely or has_others):
        options.refuse(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def _of_zookeeper(options: KafkaOptions) -> str:
    for pair in options.texts("authorizer-properties"):
        name, _, value = pair.partition("=")
        if name.strip() == "zookeeper.connect":
            return bootstrap_of_zookeeper(value.strip())
    return options.refuse("One of --bootstrap-server or --bootstrap-controller must be specified")


# ---- what is asked for


def pattern_type_of(options: KafkaOptions) -> PatternType:
    text = options.text("resource-pattern-type") or PatternType.LITERAL.name
    found = PatternType.__members__.get(text.upper(), PatternType.UNKNOWN)
    if found is PatternType.UNKNOWN:
        raise OptionError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    return found


def patterns_of(options: KafkaOptions, *, is_needed: bool) -> list[ResourcePattern]:
    pattern_type = pattern_type_of(options)
    found = [
        ResourcePattern(kind, name.strip(), pattern_type)
        for option, kind in RESOURCES.items()
        for name in options.texts(option)
    ]
    if pattern_type is PatternType.LITERAL and (options.has("cluster") or options.has("idempotent")):
        found.append(CLUSTER)
    if not found and is_needed:
        options.refuse(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return list(dict.fromkeys(found))


def wishes_of(options: KafkaOptions) -> Wishes:
    patterns = patterns_of(options, is_needed=True)
    wishes: Wishes = {}
    if not options.has("producer") and not options.has("consumer"):
        operations = [_operation(text) for text in options.texts("operation")] or [Operation.ALL]
        wishes = {pattern: entries(options, operations) for pattern in patterns}
    if options.has("producer"):
        for pattern, needed in for_role(patterns, PRODUCER).items():
            wishes[pattern] = entries(options, needed)
        if options.has("idempotent"):
            wishes[CLUSTER] = entries(options, IDEMPOTENT)
    if options.has("consumer"):
        for pattern, needed in for_role(patterns, CONSUMER).items():
            wishes.setdefault(pattern, set()).update(entries(options, needed))
    _check_operations(options, wishes)
    return wishes


def entries(options: KafkaOptions, operations: Iterable[Operation]) -> set[AccessControlEntry]:
    operations = list(operations)
    found: set[AccessControlEntry] = set()
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals = [_principal(text) for text in options.texts(f"{word}-principal")]
        hosts = [text.strip() for text in options.texts(f"{word}-host")]
        found |= entries_of(principals, hosts, operations, permission)
    return found


def _operation(text: str) -> Operation:
    try:
        return parse_operation(text)
    except ValueError:
        return Operation.UNKNOWN  # refused as one that the resource does not have


def _principal(text: str) -> str:
    try:
        return parse_principal(text)
    except ValueError as problem:
        raise OptionError(str(problem)) from None


def _check_operations(options: KafkaOptions, wishes: Wishes) -> None:
    for pattern, wanted in wishes.items():
        valid = {*OPERATIONS_OF[pattern.resource_type], Operation.ALL}
        if any(entry.operation not in valid for entry in wanted):
            names = ", ".join(each.name for each in sorted(valid))
            options.refuse(f"ResourceType {pattern.resource_type.name} only supports operations [{names}]")


# ---- what is done


def _add(client: Client, options: KafkaOptions) -> None:
    pattern_type = pattern_type_of(options)
    if not is_specific(pattern_type):
        options.refuse(f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls.")
    wishes = wishes_of(options)
    if not all(wishes.values()):
        options.refuse("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    for pattern, wanted in wishes.items():
        existing = set(describe_acls(client, filter_of(pattern)))
        bindings = [AclBinding(pattern, entry) for entry in sorted(wanted)]
        for binding in bindings:
            if binding in existing:
                say(f"Acl {binding} already exists.")
        new = [binding for binding in bindings if binding not in existing]
        if new:
            print(f"Adding ACLs for resource `{pattern}`: \n {lines_of(each.entry for each in new)}\n")
            create_acls(client, new)


def _remove(client: Client, options: KafkaOptions) -> None:
    for pattern, wanted in wishes_of(options).items():
        if not wanted:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        else:
            question = (
                f"Are you sure you want to remove ACLs: \n {lines_of(wanted)}\n from resource filter `{pattern}`? (y/n)"
            )
        if _is_sure(options, question):
            delete_acls(client, [filter_of(pattern, entry) for entry in sorted(wanted)] or [filter_of(pattern)])


def _is_sure(options: KafkaOptions, question: str) -> bool:
    if options.has("force"):
        return True
    print(question, flush=True)
    return stdin_bytes().readline().strip().lower() == b"y"


def _list(client: Client, options: KafkaOptions) -> None:
    filters = [filter_of(pattern) for pattern in patterns_of(options, is_needed=False)] or [AclFilter()]
    found: Wishes = {}
    for wanted in filters:
        for pattern, entry in describe_acls(client, wanted):
            found.setdefault(pattern, set()).add(entry)
    principals = list(dict.fromkeys(_principal(text) for text in options.texts("principal")))
    if not principals:
        _print(found)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        mine = {pattern: {each for each in found[pattern] if each.principal == principal} for pattern in found}
        _print({pattern: wanted for pattern, wanted in mine.items() if wanted})


def _print(found: Wishes) -> None:
    for pattern in sorted(found):
        print(f"Current ACLs for resource `{pattern}`:\n{lines_of(found[pattern])}\n")


def lines_of(wanted: Iterable[AccessControlEntry]) -> str:
    return "\n".join(f"\t{entry}" for entry in sorted(wanted))
