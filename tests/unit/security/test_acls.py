"""Access rules: the index against the plainest reading of Kafka's rules."""

import time
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.security import WILDCARD, WILDCARD_PRINCIPAL, Operation, PatternType, Permission, ResourceType
from ottla.security.acl_index import AclIndex
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Acls,
    ResourcePattern,
)
from ottla.security.authorizer import Authorizer
from ottla.security.denial_log import DenialLog

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

names = st.text("ab*", min_size=1, max_size=3) | st.text("a", min_size=1, max_size=40) | st.text("ab", max_size=20)
principals = st.sampled_from([WILDCARD_PRINCIPAL, "User:alice", "User:bob", "Group:alice"])
hosts = st.sampled_from([WILDCARD, "10.0.0.1", "::1"])
operations = st.sampled_from([each for each in Operation if each > Operation.ANY])
patterns = st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), names, st.sampled_from([LITERAL, PREFIXED]))
entries = st.builds(AccessControlEntry, principals, hosts, operations, st.sampled_from([ALLOW, DENY]))
many_acls = st.dictionaries(patterns, st.frozensets(entries, min_size=1, max_size=4), max_size=8)

IMPLIED = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


def bindings_of(acls: Acls) -> Iterator[AclBinding]:
    for pattern, each in acls.items():
        yield from (AclBinding(pattern, entry) for entry in sorted(each))


def is_about(pattern: ResourcePattern, kind: ResourceType, name: str) -> bool:
    if pattern.resource_type != kind:
        return False
    if pattern.pattern_type == PREFIXED:
        return name[: len(pattern.name)] == pattern.name
    return pattern.name in (WILDCARD, name)


def concerns(entry: AccessControlEntry, who: str, host: str, operation: Operation) -> bool:
    if entry.principal not in (who, WILDCARD_PRINCIPAL) or entry.host not in (WILDCARD, host):
        return False
    meant = {entry.operation}
    if entry.permission == ALLOW and entry.operation in IMPLIED:
        meant.add(IMPLIED[entry.operation])
    return operation in meant or entry.operation == Operation.ALL


def plain_answer(acls: Acls, who: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
    """One rule after the other, without any index."""
    found = [
        binding.entry.permission
        for binding in bindings_of(acls)
        if is_about(binding.pattern, kind, name) and concerns(binding.entry, who, host, operation)
    ]
    return ALLOW in found and DENY not in found


def plain_any(acls: Acls, who: str, host: str, operation: Operation, kind: ResourceType) -> bool:
    """Kafka's words: a rule that allows counts unless one that denies dominates it."""
    mine = [
        binding
        for binding in bindings_of(acls)
        if binding.pattern.resource_type == kind
        and binding.entry.principal in (who, WILDCARD_PRINCIPAL)
        and binding.entry.host in (WILDCARD, host)
        and binding.entry.operation in (operation, Operation.ALL)
    ]
    denied = [binding.pattern for binding in mine if binding.entry.permission == DENY]
    allowed = [binding.pattern for binding in mine if binding.entry.permission == ALLOW]
    if ResourcePattern(kind, WILDCARD) in denied:
        return False
    for pattern in allowed:
        if pattern == ResourcePattern(kind, WILDCARD):
            return True
        by_name = pattern.pattern_type == LITERAL and pattern in denied
        by_prefix = any(each.pattern_type == PREFIXED and pattern.name.startswith(each.name) for each in denied)
        if not by_name and not by_prefix:
            return True
    return False


@given(many_acls, principals, hosts, operations, st.sampled_from([TOPIC, GROUP]), names)
def test_the_index_decides_as_all_rules_one_by_one(
    acls: Acls, who: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> None:
    index = AclIndex(acls)
    is_allowed = index.allows(who, host, operation, kind, name)
    assert is_allowed == plain_answer(acls, who, host, operation, kind, name)
    assert index.has_rules(kind, name) == any(is_about(pattern, kind, name) for pattern in acls)
    binding = index.deciding_binding(who, host, operation, kind, name)
    if binding is None:
        assert not is_allowed
    else:
        assert (binding.entry.permission == ALLOW) == is_allowed
        assert binding.entry in acls[binding.pattern]
        assert is_about(binding.pattern, kind, name)
        assert concerns(binding.entry, who, host, operation)


@given(many_acls, principals, hosts, operations, st.sampled_from([TOPIC, GROUP]))
def test_a_right_to_any_resource_of_a_type(
    acls: Acls, who: str, host: str, operation: Operation, kind: ResourceType
) -> None:
    assert AclIndex(acls).allows_any(who, host, operation, kind) == plain_any(acls, who, host, operation, kind)


@given(many_acls, many_acls, principals, operations, names)
def test_an_index_that_was_changed_is_one_that_was_made_anew(
    before: Acls, after: Acls, who: str, operation: Operation, name: str
) -> None:
    index = AclIndex(before)
    for pattern in {**before, **after}:
        index.put(pattern, after.get(pattern, frozenset()))
    fresh = AclIndex(after)
    asked = (who, "10.0.0.1", operation)
    assert index.allows(*asked, TOPIC, name) == fresh.allows(*asked, TOPIC, name)
    assert index.deciding_binding(*asked, TOPIC, name) == fresh.deciding_binding(*asked, TOPIC, name)
    assert index.has_rules(TOPIC, name) == fresh.has_rules(TOPIC, name)
    assert index.allows_any(*asked, TOPIC) == fresh.allows_any(*asked, TOPIC)


filters = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
    st.none() | names,
    st.sampled_from([PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED]),
    st.none() | principals,
    st.none() | hosts,
    st.just(Operation.ANY) | operations,
    st.sampled_from([Permission.ANY, ALLOW, DENY]),
)


@given(many_acls, filters)
def test_a_filter_finds_what_it_means(acls: Acls, wanted: AclFilter) -> None:
    def is_meant(pattern: ResourcePattern, entry: AccessControlEntry) -> bool:
        name_fits = wanted.name is None or (
            is_about(pattern, pattern.resource_type, wanted.name)
            if wanted.pattern_type == PatternType.MATCH
            else wanted.name == pattern.name
        )
        pattern_fits = wanted.pattern_type in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type)
        return (
            name_fits
            and pattern_fits
            and wanted.resource_type in (ResourceType.ANY, pattern.resource_type)
            and wanted.principal in (None, entry.principal)
            and wanted.host in (None, entry.host)
            and wanted.operation in (Operation.ANY, entry.operation)
            and wanted.permission in (Permission.ANY, entry.permission)
        )

    expected = {AclBinding(*each) for each in bindings_of(acls) if is_meant(*each)}
    assert set(bindings_of(wanted.select(acls))) == expected


def test_java_writes_addresses_of_ipv6_in_full() -> None:
    rule = AccessControlEntry("User:alice", "0:0:0:0:0:0:0:1", Operation.READ, ALLOW)
    index = AclIndex({ResourcePattern(TOPIC, "orders"): frozenset({rule})})
    assert index.allows("User:alice", "::1", Operation.READ, TOPIC, "orders")
    assert index.deciding_binding("User:alice", "::1", Operation.READ, TOPIC, "orders") is not None


def test_a_lookup_does_not_cost_more_with_more_rules() -> None:
    def seconds_for(count: int) -> float:
        rule = frozenset({AccessControlEntry("User:alice", WILDCARD, Operation.READ, ALLOW)})
        kinds = (LITERAL, PREFIXED)
        index = AclIndex({ResourcePattern(TOPIC, f"topic-{n}", kinds[n % 2]): rule for n in range(count)})
        began = time.process_time()
        for number in range(2000):
            index.allows("User:alice", "10.0.0.1", Operation.READ, TOPIC, f"topic-{number % 10}-x")
        return time.process_time() - began

    assert seconds_for(30_000) < 10 * seconds_for(10) + 0.05


NESTED = [ResourcePattern(TOPIC, "a" * length, PREFIXED) for length in range(1, 241)]
NESTED_NAMES = [f"{'a' * 240}{number}" for number in range(1_000)]


def seconds_of_refusing(acls: Acls) -> float:
    authorizer = Authorizer(acls, denials=DenialLog(lambda: 0, is_permissive=False))
    began = time.process_time()
    for name in NESTED_NAMES:
        asked = ("User:alice", "10.0.0.1", Operation.DESCRIBE, TOPIC, name)
        assert not authorizer.is_granted(*asked)
        assert authorizer.record_denial(*asked, "Metadata")
    return time.process_time() - began


def test_a_name_under_hundreds_of_nested_prefixes_costs_what_one_under_none_does() -> None:
    """Every refusal looked at all rules about the name, of all principals: 1.3 ms with 9,000 of them."""
    others = frozenset(AccessControlEntry(f"User:{n}", WILDCARD, Operation.READ, ALLOW) for n in range(36))
    denials = frozenset({AccessControlEntry("User:alice", WILDCARD, Operation.ALL, DENY)})
    without = seconds_of_refusing({ResourcePattern(TOPIC, "b", PREFIXED): others})
    assert seconds_of_refusing(dict.fromkeys(NESTED, others)) < 5 * without + 0.05
    assert seconds_of_refusing(dict.fromkeys(NESTED, others | denials)) < 5 * without + 0.1


def test_a_right_to_any_resource_costs_little_under_nested_denials() -> None:
    """Each of the names that are allowed was looked for under each of the prefixes that are denied."""
    allowed = frozenset({AccessControlEntry("User:alice", WILDCARD, Operation.WRITE, ALLOW)})
    denied = frozenset({AccessControlEntry("User:alice", WILDCARD, Operation.WRITE, DENY)})
    literal = {ResourcePattern(TOPIC, f"{name}-{n}"): allowed for name in NESTED_NAMES for n in range(10)}
    index = AclIndex({**dict.fromkeys(NESTED, denied), **literal})
    began = time.process_time()
    assert not index.allows_any("User:alice", "10.0.0.1", Operation.WRITE, TOPIC)
    assert time.process_time() - began < 0.25
