"""ACL nodes in the store: Kafka 3.9's paths and JSON, and invalid nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.controller.acl_nodes import acl_path, acl_pattern, decode_acls, decode_changed_pattern, encode_acls
from ottla.controller.tree import DamagedNodeError
from ottla.security.acls import AccessControlEntry, ResourcePattern

READS = AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
KINDS = [kind for kind in ResourceType if kind > ResourceType.ANY]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (ResourcePattern(ResourceType.TOPIC, "orders"), "/kafka-acl/Topic/orders"),
        (ResourcePattern(ResourceType.TOPIC, "*"), "/kafka-acl/Topic/*"),
        (ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (
            ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t", PatternType.PREFIXED),
            "/kafka-acl-extended/prefixed/TransactionalId/t",
        ),
        (ResourcePattern(ResourceType.DELEGATION_TOKEN, "x"), "/kafka-acl/DelegationToken/x"),
        (ResourcePattern(ResourceType.GROUP, "a/b.c"), "/kafka-acl-escaped/Literal:Group:a%2Fb.c"),
        (ResourcePattern(ResourceType.GROUP, "..", PatternType.PREFIXED), "/kafka-acl-escaped/Prefixed:Group:.."),
    ],
)
def test_each_resource_has_its_node(pattern: ResourcePattern, path: str) -> None:
    assert acl_path(pattern) == path
    assert acl_pattern(path) == pattern


@given(st.sampled_from(KINDS), st.text(min_size=1), st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]))
def test_every_name_can_be_kept(kind: ResourceType, name: str, pattern_type: PatternType) -> None:
    pattern = ResourcePattern(kind, name, pattern_type)
    path = acl_path(pattern)
    assert acl_pattern(path) == pattern
    assert not {"", ".", ".."} & set(path[1:].split("/")), "ZooKeeper would refuse it"


@pytest.mark.parametrize(
    "path", ["/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Nonsense/a", "/kafka-acl-extended/prefixed"]
)
def test_other_paths_are_those_of_no_resource(path: str) -> None:
    assert acl_pattern(path) is None


def test_the_json_is_kafkas() -> None:
    data = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
        b'{"principal":"User:bob","permissionType":"Deny","operation":"DescribeConfigs","host":"10.0.0.1"}]}'
    )
    denies = AccessControlEntry("User:bob", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY)
    assert decode_acls("/x", data) == {READS, denies}
    assert encode_acls(frozenset({READS, denies})) == data
    assert decode_acls("/x", b"") == frozenset(), "Kafka leaves such nodes"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":{}, "acls":3}',
        b'{"version":1,"acls":[{"principal":"alice","permissionType":"Allow","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Any","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Perhaps","operation":"Read","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":null}]}',
        b'{"version":1,"acls":["User:a"]}',
        b"\xff\xfe",
    ],
)
def test_invalid_nodes_are_damaged(data: bytes) -> None:
    with pytest.raises(DamagedNodeError, match="/kafka-acl/Topic/a is damaged"):
        decode_acls("/kafka-acl/Topic/a", data)


def test_notices_of_kafkas_tools() -> None:
    assert decode_changed_pattern(b"TOPIC:a:b") == ResourcePattern(ResourceType.TOPIC, "a:b")
    assert decode_changed_pattern(b"Topic:a") == ResourcePattern(ResourceType.TOPIC, "a")
    told = b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"x","patternType":"PREFIXED"}'
    assert decode_changed_pattern(told) == ResourcePattern(ResourceType.TRANSACTIONAL_ID, "x", PatternType.PREFIXED)
    assert [decode_changed_pattern(data) for data in (b"", b"x", b"{}", b"\xff", b"{[", b"NOPE:x")] == [None] * 6
