"""Changes of delegation tokens with Kafka's error codes, and the token nodes of Kafka 3.9."""

from __future__ import annotations

import json

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.controller import token_nodes, tree
from ottla.controller.decisions import token_changes
from ottla.controller.decisions.token_changes import (
    decide_create_token,
    decide_expire_token,
    decide_external_tokens,
    decide_remove_expired,
    decide_renew_token,
)
from ottla.controller.image import MetadataImage
from ottla.controller.image_loader import load_image, load_image_leniently
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode
from ottla.security.delegation_tokens import DelegationToken

NOW = 1_000_000
ALICE = DelegationToken("t1", "User:alice", "User:alice", ("User:bob",), NOW, NOW + 700, NOW + 100)
PATH = "/delegation_token/tokens/t1"
KAFKA_39 = (
    b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Aalice","renewers":["User%3Abob"],'
    b'"issueTimestamp":1000000,"maxTimestamp":1000700,"expiryTimestamp":1000100,"tokenId":"t1"}'
)


def image_of(*tokens: DelegationToken) -> MetadataImage:
    return MetadataImage(delegation_tokens={token.token_id: token for token in tokens})


def test_token_node_is_that_of_kafka_3_9() -> None:
    decision = decide_create_token(MetadataImage(), ALICE)
    (operation,) = decision.operations
    assert isinstance(operation, CreateNode)
    assert (operation.path, json.loads(operation.data)) == (PATH, json.loads(KAFKA_39))
    assert decision.image.delegation_tokens == {"t1": ALICE}
    assert load_image({PATH: Node(KAFKA_39, 0, 0)}).delegation_tokens == {"t1": ALICE}


def test_requester_of_an_older_token_is_its_owner() -> None:
    fields = {**json.loads(KAFKA_39), "version": 1}
    del fields["tokenRequester"]
    assert token_nodes.decode_token(PATH, json.dumps(fields).encode()) == ALICE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        KAFKA_39.replace(b'"version":3', b'"version":4'),
        KAFKA_39.replace(b"t1", b"t2"),
        KAFKA_39.replace(b"User%3Aalice", b"alice"),
        KAFKA_39.replace(b"1000100", b'"soon"'),
        KAFKA_39.replace(b"1000100", b"9223372036854775808"),
    ],
)
def test_a_damaged_token_is_good_for_nothing(data: bytes) -> None:
    node = Node(data, 0, 0)
    with pytest.raises(tree.DamagedNodeError):
        load_image({PATH: node})
    image = load_image_leniently({PATH: node}, image_of(ALICE))
    assert (image.delegation_tokens, image.damaged) == ({}, {PATH})


def test_renewal_is_limited_by_the_maximum_lifetime() -> None:
    decision = decide_renew_token(image_of(ALICE), "t1", "User:bob", 300, NOW + 50)
    assert decision.reply.expiry_ms == NOW + 350
    assert decision.image.delegation_tokens["t1"] == ALICE._replace(expiry_ms=NOW + 350)
    assert isinstance(decision.operations[0], SetNode)
    assert decide_renew_token(image_of(ALICE), "t1", "User:alice", 2**62, NOW).reply.expiry_ms == NOW + 700


def test_a_token_expires_soon_or_at_once() -> None:
    soon = decide_expire_token(image_of(ALICE), "t1", "User:alice", 20, NOW)
    assert soon.reply.expiry_ms == NOW + 20
    gone = decide_expire_token(image_of(ALICE), "t1", "User:bob", -1, NOW)
    assert gone.operations == (DeleteNode(PATH),)
    assert gone.image.delegation_tokens == {}


def test_order_of_the_expiry_check() -> None:
    """The order of the checks is Kafka's, and differs between renewal and expiry."""
    late_ms = NOW + 101
    with pytest.raises(KafkaError) as caught:
        decide_renew_token(image_of(ALICE), "t1", "User:carol", 10, late_ms)
    assert caught.value.error is Error.DELEGATION_TOKEN_EXPIRED
    with pytest.raises(KafkaError) as caught:
        decide_expire_token(image_of(ALICE), "t1", "User:carol", 10, late_ms)
    assert caught.value.error is Error.DELEGATION_TOKEN_OWNER_MISMATCH
    assert decide_expire_token(image_of(ALICE), "t1", "User:alice", -1, late_ms).image.delegation_tokens == {}


@pytest.mark.parametrize("decide", [decide_renew_token, decide_expire_token])
@pytest.mark.parametrize(
    ("token_id", "principal", "now_ms", "error"),
    [
        (None, "User:alice", NOW, Error.DELEGATION_TOKEN_NOT_FOUND),
        ("t2", "User:alice", NOW, Error.DELEGATION_TOKEN_NOT_FOUND),
        ("t1", "User:carol", NOW, Error.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("t1", "Group:alice", NOW, Error.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("t1", "User:alice", NOW + 101, Error.DELEGATION_TOKEN_EXPIRED),
        ("t1", "User:bob", NOW + 701, Error.DELEGATION_TOKEN_EXPIRED),
    ],
)
def test_principals_that_cannot_change_a_token(
    decide: type, token_id: str | None, principal: str, now_ms: int, error: Error
) -> None:
    with pytest.raises(KafkaError) as caught:
        decide(image_of(ALICE), token_id, principal, 10, now_ms)
    assert caught.value.error is error


def test_requester_of_a_token_for_another_owner_can_only_describe_it() -> None:
    token = ALICE._replace(token_requester="User:carol")
    assert token.related_principals == ("User:alice", "User:carol", "User:bob")
    assert not token.can_be_renewed_by("User:carol")


def test_only_expired_tokens_are_deleted() -> None:
    old, worn_out = ALICE._replace(token_id="t2", expiry_ms=NOW - 1), ALICE._replace(token_id="t3", max_ms=NOW - 1)
    decision = decide_remove_expired(image_of(ALICE, old, worn_out), NOW)
    assert decision.reply == [old, worn_out]
    assert decision.operations == tuple(DeleteNode(f"/delegation_token/tokens/{name}") for name in ("t2", "t3"))
    assert decision.image.delegation_tokens == {"t1": ALICE}
    assert decide_remove_expired(decision.image, NOW).operations == ()


def test_number_of_tokens_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_changes, "TOKENS_PER_OWNER_MAX", 1)
    other = ALICE._replace(token_id="t2")
    with pytest.raises(KafkaError) as caught:
        decide_create_token(image_of(ALICE), other)
    assert caught.value.error is Error.POLICY_VIOLATION
    assert decide_create_token(image_of(ALICE), other._replace(owner="User:bob")).operations


def test_changes_of_other_tools_are_loaded() -> None:
    longer = ALICE._replace(expiry_ms=NOW + 200)
    nodes = {PATH: Node(token_nodes.encode_token(longer), 1, 0)}
    changed = decide_external_tokens(image_of(ALICE), ["t1"], nodes)
    assert (changed.reply, changed.image.delegation_tokens, changed.operations) == (1, {"t1": longer}, ())
    assert decide_external_tokens(changed.image, ["t1"], nodes).image is changed.image
    gone = decide_external_tokens(changed.image, ["t1", "never"], {})
    assert (gone.reply, gone.image.delegation_tokens) == (1, {})
    damaged = decide_external_tokens(image_of(ALICE), ["t1"], {PATH: Node(b"x", 2, 0)})
    assert (damaged.image.delegation_tokens, damaged.image.damaged) == ({}, {PATH})
    mended = decide_external_tokens(damaged.image, ["t1"], nodes)
    assert (mended.image.delegation_tokens, mended.image.damaged) == ({"t1": longer}, frozenset())


def test_notices_name_a_token() -> None:
    assert token_nodes.decode_changed_token(b"t1") == "t1"
    assert [token_nodes.decode_changed_token(data) for data in (b"", b"\xff", b"a/b")] == [None] * 3
