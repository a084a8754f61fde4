"""Decisions that a change of ACLs changes."""

from __future__ import annotations

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.operations.acls.evaluation import ChangedDecisions, changed_acls, changed_decisions
from ottla.security.acls import AccessControlEntry, AclBinding, ResourcePattern, group_by_pattern
from ottla.security.authorizer import Authorizer

EXISTING = {ResourceType.TOPIC: ["orders-1", "orders-2", "payments"]}


def rule(
    name: str,
    principal: str = "User:alice",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> AclBinding:
    entry = AccessControlEntry(principal, host, operation, permission)
    return AclBinding(ResourcePattern(ResourceType.TOPIC, name, pattern), entry)


def told(found: ChangedDecisions) -> set[tuple[str, str, str, bool]]:
    return {
        (each.question.principal, each.question.operation.name, each.question.name, each.after.is_allowed)
        for each in found.found
    }


def work_out(
    rules: list[AclBinding], *, add: tuple[AclBinding, ...] = (), remove: tuple[AclBinding, ...] = ()
) -> set[tuple[str, str, str, bool]]:
    return told(changed_decisions(Authorizer(group_by_pattern(rules), ["User:root"]), add, remove, EXISTING))


def test_losing_read_also_loses_describe() -> None:
    read = rule("orders-1")
    assert work_out([read], remove=(read,)) == {
        ("User:alice", "READ", "orders-1", False),
        ("User:alice", "DESCRIBE", "orders-1", False),
    }


def test_an_equivalent_rule_keeps_the_right() -> None:
    read = rule("orders-1")
    wide = rule("orders-", operation=Operation.ALL, pattern=PatternType.PREFIXED)
    assert work_out([read, wide], remove=(read,)) == set()


def test_a_beginning_of_names_is_about_all_that_are_there() -> None:
    wide = rule("orders-", operation=Operation.WRITE, pattern=PatternType.PREFIXED)
    names = {name for _, operation, name, _ in work_out([], add=(wide,)) if operation == "WRITE"}
    assert names == {"orders-1", "orders-2"}
    later = rule("invoices-", pattern=PatternType.PREFIXED)
    assert ("User:alice", "READ", "invoices-", True) in work_out([], add=(later,)), "of which there is none yet"


def test_a_wildcard_denial_lists_every_principal_with_a_rule() -> None:
    denial = rule("*", "User:*", permission=Permission.DENY)
    found = work_out([rule("payments"), rule("payments", "User:bob")], add=(denial,))
    assert found == {("User:alice", "READ", "payments", False), ("User:bob", "READ", "payments", False)}
    assert ("User:alice", "READ", "payments", True) in work_out([rule("payments"), denial], remove=(denial,))


def test_super_users_lose_nothing_and_hosts_count() -> None:
    own = rule("payments", "User:root")
    assert work_out([own], remove=(own,)) == set()
    here = rule("payments", host="10.0.0.1")
    (read, _) = changed_decisions(Authorizer({}), [here], [], EXISTING).found
    assert read.question.host == "10.0.0.1"


def test_rules_are_changed_without_leaving_empty_patterns() -> None:
    read, write = rule("a"), rule("a", operation=Operation.WRITE)
    acls = changed_acls(group_by_pattern([read]), [write], [read])
    assert acls == group_by_pattern([write])
    assert changed_acls(acls, [], [write, rule("gone")]) == {}
