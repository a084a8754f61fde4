"""AlterUserScramCredentials with Kafka's error codes and messages, and the user nodes in the store."""

from __future__ import annotations

import pytest

from ottla.base.errors import Error
from ottla.controller import tree
from ottla.controller.decisions.scram_changes import ScramDeletion, ScramUpsertion, decide_scram_changes
from ottla.controller.image import MetadataImage
from ottla.controller.image_loader import load_image
from ottla.controller.stores.store import CreateNode, Node, SetNode
from ottla.security.scram_credentials import make_credential, parse_credential, salted_password

SALT = b"salt"


def given(name: str = "alice", mechanism: int = 1, iterations: int = 4096, **more: bytes) -> ScramUpsertion:
    salted = salted_password("SCRAM-SHA-256", b"geheim", SALT, 4096)
    return ScramUpsertion(name, mechanism, iterations, more.get("salt", SALT), more.get("salted", salted))


def test_a_password_is_kept_beside_other_settings_of_its_user() -> None:
    image = MetadataImage(user_configs={"alice": {"producer_byte_rate": "5"}})
    decision = decide_scram_changes(image, [], [given(), given("bob")])
    assert [(result.name, result.error) for result in decision.reply] == [("alice", 0), ("bob", 0)]
    kept = decision.image.user_configs["alice"]
    assert list(kept) == ["producer_byte_rate", "SCRAM-SHA-256"]
    assert parse_credential("SCRAM-SHA-256", kept["SCRAM-SHA-256"]) == make_credential("SCRAM-SHA-256", b"geheim", SALT)
    assert [type(operation) for operation in decision.operations] == [SetNode, CreateNode]
    assert decision.operations[0].path == "/config/users/alice"  # type: ignore[union-attr]


def test_deletion_keeps_other_credentials() -> None:
    image = decide_scram_changes(MetadataImage(), [], [given(), given(mechanism=2)]).image
    decision = decide_scram_changes(image, [ScramDeletion("alice", 1)], [])
    assert list(decision.image.user_configs["alice"]) == ["SCRAM-SHA-512"]
    last = decide_scram_changes(decision.image, [ScramDeletion("alice", 2)], [])
    assert last.image.user_configs == {"alice": {}}
    assert last.operations == (SetNode("/config/users/alice", tree.encode_config({})),)


@pytest.mark.parametrize(
    ("deletions", "upsertions", "error", "message"),
    [
        ([], [given("")], Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([], [given(mechanism=0)], Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([], [given(mechanism=3)], Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([], [given(iterations=4095)], Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([], [given(iterations=-1)], Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([], [given(iterations=16_385)], Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        ([], [given(salt=b"")], Error.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty"),
        ([], [given(salted=b"")], Error.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty"),
        (
            [ScramDeletion("alice", 1)],
            [],
            Error.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            [ScramDeletion("alice", 1)],
            [given()],
            Error.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        (
            [],
            [given(), given()],
            Error.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
    ],
)
def test_what_is_refused(
    deletions: list[ScramDeletion], upsertions: list[ScramUpsertion], error: Error, message: str
) -> None:
    decision = decide_scram_changes(MetadataImage(), deletions, upsertions)
    (result,) = decision.reply
    assert (result.error, result.message) == (error, message)
    assert decision.operations == ()


def test_one_user_s_mistake_is_not_another_s() -> None:
    decision = decide_scram_changes(MetadataImage(), [], [given("a"), given("a", 2, 1), given("b")])
    assert [(result.name, result.error) for result in decision.reply] == [
        ("a", Error.UNACCEPTABLE_CREDENTIAL),
        ("b", Error.NONE),
    ]
    assert list(decision.image.user_configs) == ["b"]


def test_a_node_that_cannot_be_read_is_not_overwritten() -> None:
    image = MetadataImage(damaged=["/config/users/alice"])
    (result,) = decide_scram_changes(image, [], [given()]).reply
    assert result.error is Error.KAFKA_STORAGE_ERROR


def test_no_secret_is_shown() -> None:
    assert "salt" not in repr(given())


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("alice", "alice"),
        ("CN=bob, O=x", "CN%3Dbob%2C%20O%3Dx"),
        ("a*b~c", "a%2Ab%7Ec"),
        ("a.b", "a.b"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("ü/x", "%C3%BC%2Fx"),
        ("<default>", "%3Cdefault%3E"),
        ("a+b%", "a%2Bb%25"),
    ],
)
def test_user_names_are_encoded_as_in_kafka(name: str, node: str) -> None:
    path = tree.config_path(tree.USER_CONFIG, name)
    assert path == f"/config/users/{node}"
    assert tree.config_entity(tree.USER_CONFIG, node) == name


def test_default_of_all_users_and_of_their_clients_differ() -> None:
    assert tree.config_entity(tree.USER_CONFIG, "<default>") == ""
    assert tree.config_path(tree.USER_CONFIG, "") == "/config/users/<default>"
    nodes = {
        "/config/users/alice": Node(tree.encode_config({"SCRAM-SHA-256": "x"}), 0, 1),
        "/config/users/alice/clients/c": Node(tree.encode_config({"producer_byte_rate": "1"}), 0, 1),
        "/config/users/bob": Node(b"", 0, 1),
    }
    assert load_image(nodes).user_configs == {"alice": {"SCRAM-SHA-256": "x"}, "bob": {}}
