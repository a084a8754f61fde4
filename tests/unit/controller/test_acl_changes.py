"""CreateAcls and DeleteAcls: writes, responses, damaged nodes."""

import pytest
from tests.unit.controller.controller_harness import ControllerHarness

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.controller.acl_nodes import acl_path, encode_acls
from ottla.controller.decisions.acl_changes import (
    NewAcl,
    decide_create_acls,
    decide_delete_acls,
    decide_external_acls,
)
from ottla.controller.image_loader import load_image_leniently
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode
from ottla.security.acls import DENY_ALL, AccessControlEntry, AclBinding, AclFilter, ResourcePattern

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
READ, ALLOW = Operation.READ, Permission.ALLOW
ORDERS = ResourcePattern(TOPIC, "orders")


def rule(name: str = "orders", who: str = "User:alice", **other: int) -> NewAcl:
    return NewAcl(TOPIC, name, LITERAL, who, "*", READ, ALLOW)._replace(**other)


def entry(who: str = "User:alice") -> AccessControlEntry:
    return AccessControlEntry(who, "*", READ, ALLOW)


def create(stand: ControllerHarness, *wanted: NewAcl) -> list[tuple[Error, str | None] | None]:
    results = stand.run(decide_create_acls(stand.image, wanted))
    return [(each.error, each.message) if each is not None else None for each in results]


def test_acls_are_created_and_deleted_one_by_one() -> None:
    stand = ControllerHarness()
    assert create(stand, rule(), rule(), rule(who="User:bob")) == [None] * 3
    assert stand.image.acls == {ORDERS: {entry(), entry("User:bob")}}
    assert decide_create_acls(stand.image, [rule()]).operations == (), "it is there already"
    (removal,) = stand.run(decide_delete_acls(stand.image, [AclFilter(principal="User:alice")]))
    assert removal.removed == (AclBinding(ORDERS, entry()),)
    assert stand.image.acls == {ORDERS: {entry("User:bob")}}, "the others stay"
    stand.run(decide_delete_acls(stand.image, [AclFilter()]))
    assert stand.image.acls == {}
    assert stand.tree.get("/kafka-acl/Topic/orders") is None
    assert create(stand, rule()) == [None]


def test_what_is_written_expects_what_was_read() -> None:
    stand = ControllerHarness()
    assert decide_create_acls(stand.image, [rule()]).operations == (
        CreateNode("/kafka-acl/Topic/orders", encode_acls(frozenset({entry()}))),
    )
    create(stand, rule())
    create(stand, rule(who="User:bob"))
    (operation,) = decide_create_acls(stand.image, [rule(who="User:carol")]).operations
    assert isinstance(operation, SetNode)
    assert operation.expected_version == 1
    assert decide_delete_acls(stand.image, [AclFilter()]).operations == (DeleteNode("/kafka-acl/Topic/orders", 1),)


def test_result_of_every_filter_has_all_matching_acls() -> None:
    stand = ControllerHarness()
    create(stand, rule(), rule("ord", pattern_type=PREFIXED), rule("other"))
    everything = AclFilter(TOPIC, "orders", PatternType.MATCH)
    results = stand.run(decide_delete_acls(stand.image, [everything, AclFilter(name="orders")]))
    assert [len(each.removed) for each in results] == [2, 1]
    assert list(stand.image.acls) == [ResourcePattern(TOPIC, "other")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rule(resource_type=ResourceType.CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (rule(""), "Invalid empty resource name"),
        (rule(resource_type=ResourceType.ANY), "Invalid resourceType ANY"),
        (rule(resource_type=99), "Invalid resourceType UNKNOWN"),
        (rule(pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
        (rule(operation=Operation.ANY), "Invalid operation ANY"),
        (rule(permission=Permission.ANY), "Invalid permissionType ANY"),
        (
            rule(who="alice"),
            (
                "Could not parse principal from `alice` (no colon is present separating the principal type from the "
                "principal name)"
            ),
        ),
    ],
)
def test_invalid_acl_is_refused_and_does_not_affect_others(wrong: NewAcl, message: str) -> None:
    stand = ControllerHarness()
    assert create(stand, wrong, rule()) == [(Error.INVALID_REQUEST, message), None]
    assert list(stand.image.acls) == [ORDERS]


def test_a_filter_that_means_nothing() -> None:
    wrong = [AclFilter(resource_type=0), AclFilter(pattern_type=9), AclFilter(operation=0), AclFilter(permission=0)]
    results = decide_delete_acls(ControllerHarness().image, wrong).reply
    assert {each.error for each in results} == {Error.INVALID_REQUEST}
    assert [each.message for each in results] == ["Unknown patternFilter."] * 2 + ["Unknown entryFilter."] * 2


def test_damaged_node_is_reported_denies_all_access_and_is_not_written() -> None:
    stand = ControllerHarness()
    create(stand, rule(), rule("other"))
    stand.tree.multi([SetNode("/kafka-acl/Topic/orders", b'{"version":1,"acls":[{')])
    image = load_image_leniently(stand.tree.subtree("/"), stand.image)
    assert image.damaged == {"/kafka-acl/Topic/orders"}
    assert image.acls[ORDERS] == DENY_ALL
    assert image.acls[ResourcePattern(TOPIC, "other")] == {entry()}
    (refusal,) = decide_create_acls(image, [rule()]).reply
    assert refusal is not None
    assert refusal.error is Error.KAFKA_STORAGE_ERROR
    decision = decide_delete_acls(image, [AclFilter()])
    assert decision.operations == ()
    assert decision.reply[0].error is Error.KAFKA_STORAGE_ERROR


def test_changes_of_other_tools_are_loaded() -> None:
    stand = ControllerHarness()
    create(stand, rule(), rule("gone"))
    path, gone = acl_path(ORDERS), ResourcePattern(TOPIC, "gone")
    nodes = {path: Node(encode_acls(frozenset({entry("User:bob")})), 7, 1)}
    decision = decide_external_acls(stand.image, [ORDERS, gone, ResourcePattern(TOPIC, "never")], nodes)
    assert (decision.operations, decision.reply) == ((), 2)
    assert decision.image.acls == {ORDERS: {entry("User:bob")}}
    (operation,) = decide_create_acls(decision.image, [rule()]).operations
    assert operation == SetNode(path, encode_acls(frozenset({entry(), entry("User:bob")})), 7)
    broken = decide_external_acls(decision.image, [ORDERS], {path: Node(b"{", 8, 1)}).image
    assert (broken.damaged, broken.acls) == ({path}, {ORDERS: DENY_ALL})
    mended = decide_external_acls(broken, [ORDERS], {path: Node(b"", 9, 1)}).image
    assert (mended.damaged, mended.acls) == (frozenset(), {})
    assert isinstance(decide_create_acls(mended, [rule()]).operations[0], SetNode), "the empty node is used again"


def test_a_broker_that_is_alone_does_not_start_on_damaged_rules() -> None:
    stand = ControllerHarness()
    create(stand, rule())
    stand.tree.multi([SetNode("/kafka-acl/Topic/orders", b"{")])
    with pytest.raises(ValueError, match="/kafka-acl/Topic/orders is damaged"):
        stand.start(1)


def test_a_refusal_is_a_kafka_error() -> None:
    (refusal,) = decide_create_acls(ControllerHarness().image, [rule("")]).reply
    assert isinstance(refusal, KafkaError)
