"""`ottla acls`: list, add and remove ACLs, explain an authorization decision, suggest ACLs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Final

from ottla.base.security import (
    Operation,
    PatternType,
    Permission,
    pascal_name,
)
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag
from ottla.cli.client_settings import client_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import UsageError, print_line
from ottla.client.acls import create_acls, delete_acls, describe_acls
from ottla.client.client import Client
from ottla.operations.acls.acl_entries import (
    CLUSTER,
    CONSUMER_OPERATIONS,
    PRODUCER_OPERATIONS,
    RESOURCES,
    acl_entries,
    acl_filter,
    operation_problem,
    operation_word,
    operations_for_role,
    parse_operation,
    parse_principal,
)
from ottla.operations.acls.evaluation import (
    AuthorizationRequest,
    acl_command,
    answer_lines,
    changes_to_reverse,
    decision_reason,
    load_authorizer,
    suggest_acls,
)
from ottla.security.acls import AclBinding, AclFilter, ResourcePattern
from ottla.security.denial_log import DENIED, WOULD_BE_DENIED, read_denials

EXAMPLES: Final = """
ottla acls list
ottla acls add --allow User:alice --operation read,describe --topic orders
ottla acls add --allow User:alice --consumer --topic orders --group billing
ottla acls remove --allow User:alice --operation read --topic orders
ottla acls explain --principal User:alice --operation read --topic orders
ottla acls suggest logs/kafka-authorizer.log
"""
COLUMNS: Final = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.action == _suggest:  # needs no cluster
        return _suggest(options)
    with client_of(options) as client:
        code: int = options.action(client, options)
        return code


# The resources that a rule is about.
RESOURCE_ARGUMENTS: Final = (
    *(
        Argument(f"--{name}", action="append", default=[], metavar="NAME", help="a resource; *: all of its kind")
        for name in RESOURCES
    ),
    flag("--cluster", help="the cluster as a resource"),
    flag("--prefixed", help="names are beginnings of names"),
)
RULE_ARGUMENTS: Final = (
    Argument("--allow", action="append", default=[], metavar="PRINCIPAL", help="principal to allow"),
    Argument("--deny", action="append", default=[], metavar="PRINCIPAL", help="principal to deny"),
    Argument("--operation", action="append", default=[], metavar="NAME[,NAME]", help="operations; default: all"),
    Argument("--host", action="append", default=[], metavar="ADDRESS", help="from where; default: anywhere"),
    flag("--producer", help="the operations of a producer"),
    flag("--consumer", help="the operations of a consumer"),
    *RESOURCE_ARGUMENTS,
)


def _parser() -> Parser:
    as_json = flag("--json", help="print JSON")
    return Parser(
        prog="ottla acls",
        description="Manage access rules (ACLs).",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "list",
                "show rules",
                _list,
                Argument("--principal", metavar="PRINCIPAL", help="only rules of this one, such as User:alice"),
                *RESOURCE_ARGUMENTS,
                as_json,
                examples=EXAMPLES,
            ),
            Command("add", "add rules", _add, *RULE_ARGUMENTS, as_json, examples=EXAMPLES),
            Command("remove", "remove rules", _remove, *RULE_ARGUMENTS, as_json, examples=EXAMPLES),
            Command(
                "explain",
                "explain why an operation is allowed or denied",
                _explain,
                Argument("--principal", required=True, metavar="PRINCIPAL", help="the principal, such as User:alice"),
                Argument("--operation", required=True, metavar="NAME", help="the operation"),
                Argument("--host", default="", metavar="ADDRESS", help="from where"),
                *RESOURCE_ARGUMENTS,
                as_json,
                examples=EXAMPLES,
            ),
            Command(
                "suggest",
                "suggest rules from the denials that permissive mode has logged",
                _suggest,
                Argument("file", metavar="FILE", help="a kafka-authorizer.log"),
                flag("--denied", help="use actual denials instead"),
                as_json,
                has_shared=False,
                examples=EXAMPLES,
            ),
        ),
    )


def _patterns(options: argparse.Namespace) -> list[ResourcePattern]:
    kind = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    found = [
        ResourcePattern(resource_type, name, kind)
        for option, resource_type in RESOURCES.items()
        for name in getattr(options, option.replace("-", "_"))
    ]
    return [*found, CLUSTER] if options.cluster else found


def _principals(texts: Sequence[str]) -> list[str]:
    try:
        return list(map(parse_principal, texts))
    except ValueError as problem:
        raise UsageError(str(problem)) from None


def _operations(texts: Sequence[str]) -> list[Operation]:
    try:
        return [parse_operation(word) for text in texts for word in text.split(",")]
    except ValueError as problem:
        raise UsageError(str(problem)) from None


def _wanted(options: argparse.Namespace) -> list[AclBinding]:
    """The ACLs that the options of add and remove describe."""
    patterns = _patterns(options)
    if not patterns:
        raise UsageError("name a resource: --topic, --group, --transactional-id, --user-principal or --cluster")
    if not options.allow and not options.deny:
        raise UsageError("name a principal: --allow User:alice or --deny User:alice")
    needed: dict[ResourcePattern, list[Operation]] = {}
    if options.producer or options.consumer:
        if options.operation:
            raise UsageError("--producer and --consumer imply the operations: omit --operation")
        for is_wanted, role in ((options.producer, PRODUCER_OPERATIONS), (options.consumer, CONSUMER_OPERATIONS)):
            for pattern, operations in (operations_for_role(patterns, role) if is_wanted else {}).items():
                needed.setdefault(pattern, []).extend(operations)
    else:
        needed = dict.fromkeys(patterns, _operations(options.operation) or [Operation.ALL])
    found = []
    for pattern, operations in needed.items():
        for operation in operations:
            problem = operation_problem(pattern.resource_type, operation)
            if problem:
                raise UsageError(problem)
        for principals, permission in ((options.allow, Permission.ALLOW), (options.deny, Permission.DENY)):
            entries = acl_entries(_principals(principals), options.host, operations, permission)
            found += [AclBinding(pattern, entry) for entry in sorted(entries)]
    return found


# ---- commands


def _list(client: Client, options: argparse.Namespace) -> int:
    filters = [acl_filter(pattern) for pattern in _patterns(options)] or [AclFilter()]
    if options.principal:
        (principal,) = _principals([options.principal])
        filters = [each._replace(principal=principal) for each in filters]
    found = sorted({binding for each in filters for binding in describe_acls(client, each)})
    return _print_rules(found, options)


def _add(client: Client, options: argparse.Namespace) -> int:
    wanted = _wanted(options)
    create_acls(client, wanted)
    return _print_rules(wanted, options)


def _remove(client: Client, options: argparse.Namespace) -> int:
    return _print_rules(delete_acls(client, [acl_filter(*binding) for binding in _wanted(options)]), options)


def _print_rules(bindings: Sequence[AclBinding], options: argparse.Namespace) -> int:
    rows = [_row(binding) for binding in bindings]
    if options.json:
        print(json.dumps([dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows], indent=2))
    else:
        print_table(COLUMNS, rows)
    return 0


def _row(binding: AclBinding) -> tuple[str, ...]:
    pattern, entry = binding
    return (
        pascal_name(pattern.resource_type),
        pattern.name,
        pattern.pattern_type.name.lower(),
        entry.principal,
        entry.host,
        operation_word(entry.operation),
        entry.permission.name.lower(),
    )


def _explain(client: Client, options: argparse.Namespace) -> int:
    patterns = _patterns(options)
    if len(patterns) != 1 or options.prefixed:
        raise UsageError("name one resource, such as --topic orders")
    (principal,), (operation,) = _principals([options.principal]), _operations([options.operation])
    question = AuthorizationRequest(principal, operation, patterns[0].resource_type, patterns[0].name, options.host)
    authorizer = load_authorizer(client, describe_acls(client, AclFilter()))
    found = authorizer.explain(*question.authorize_arguments)
    commands = [acl_command(*step) for step in changes_to_reverse(question, authorizer)]
    if options.json:
        facts = {"allowed": found.is_allowed, "because": decision_reason(question, found), "rule": found.rule}
        print(json.dumps({**facts, "commands": commands}, indent=2))
    else:
        for line in answer_lines(question, found, commands):
            print_line(line)
    return 0


def _suggest(options: argparse.Namespace) -> int:
    try:
        with open(options.file, encoding="utf-8", errors="replace") as lines:
            found = suggest_acls(read_denials(lines, word=DENIED if options.denied else WOULD_BE_DENIED))
    except OSError as problem:
        raise UsageError(f"{options.file} cannot be read: {problem.strerror or problem}") from None
    if options.json:
        return _print_rules(found, options)
    for binding in found:
        print_line(acl_command("add", binding))
    return 0
