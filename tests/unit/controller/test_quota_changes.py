"""AlterClientQuotas with Kafka's error codes and messages, and the quota nodes in the store."""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.controller import tree
from ottla.controller.cluster.deltas import apply_delta, difference, snapshot
from ottla.controller.decisions import external_changes
from ottla.controller.decisions.quota_changes import QuotaAlteration, QuotaOperation, decide_quota_changes
from ottla.controller.image import MetadataImage
from ottla.controller.image_loader import load_image, load_image_leniently
from ottla.controller.quota_nodes import is_quota_path, quota_entity, quota_path
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode, StoreOperation
from ottla.quotas.entities import of_address, of_client, of_user, of_user_and_client

BYTES = "producer_byte_rate"


def wanted(*parts: tuple[str, str | None], **values: float | None) -> QuotaAlteration:
    return QuotaAlteration(parts, tuple(QuotaOperation(key, value) for key, value in values.items()))


def stored(operations: tuple[StoreOperation, ...]) -> dict[str, Node]:
    """The nodes after these operations."""
    nodes: dict[str, Node] = {}
    for operation in operations:
        if isinstance(operation, DeleteNode):
            del nodes[operation.path]
        else:
            assert isinstance(operation, CreateNode | SetNode)
            nodes[operation.path] = Node(operation.data, 0, 1)
    return nodes


def test_quota_nodes_are_those_of_kafka() -> None:
    decision = decide_quota_changes(
        MetadataImage(),
        [
            wanted(("user", "alice"), producer_byte_rate=5.0),
            wanted(("user", "jörg /"), ("client-id", None), request_percentage=12.5),
            wanted(("client-id", "app"), consumer_byte_rate=7.0),
            wanted(("ip", "::1"), connection_creation_rate=3.0),
            wanted(("user", None), controller_mutation_rate=0.1),
        ],
    )
    assert [result.error for result in decision.reply] == [Error.NONE] * 5
    nodes = stored(decision.operations)
    assert {path: tree.decode_config(path, node.data) for path, node in nodes.items()} == {
        "/config/users/alice": {BYTES: "5"},
        "/config/users/j%C3%B6rg%20%2F": {},
        "/config/users/j%C3%B6rg%20%2F/clients": {},
        "/config/users/j%C3%B6rg%20%2F/clients/<default>": {"request_percentage": "12.5"},
        "/config/clients/app": {"consumer_byte_rate": "7"},
        "/config/ips/%3A%3A1": {"connection_creation_rate": "3"},
        "/config/users/<default>": {"controller_mutation_rate": "0.1"},
    }
    loaded = load_image(nodes)
    assert (loaded.user_configs, loaded.quota_configs) == (decision.image.user_configs, decision.image.quota_configs)


def test_passwords_cannot_be_removed_by_this_api() -> None:
    image = MetadataImage(user_configs={"alice": {"SCRAM-SHA-256": "secret"}})
    decision = decide_quota_changes(image, [wanted(("user", "alice"), producer_byte_rate=5.0)])
    assert decision.image.user_configs == {"alice": {"SCRAM-SHA-256": "secret", BYTES: "5"}}
    taking = QuotaAlteration((("user", "alice"),), (QuotaOperation("SCRAM-SHA-256", None), QuotaOperation(BYTES, None)))
    after = decide_quota_changes(decision.image, [taking])
    assert after.image.user_configs == {"alice": {"SCRAM-SHA-256": "secret"}}
    assert after.reply[0].error is Error.NONE


def test_node_is_deleted_with_the_last_quota_unless_it_is_a_user() -> None:
    given = [
        wanted(("user", "a"), producer_byte_rate=5.0),
        wanted(("user", "a"), ("client-id", "c"), producer_byte_rate=5.0),
        wanted(("client-id", "c"), producer_byte_rate=5.0),
    ]
    image = decide_quota_changes(MetadataImage(), given).image
    taken = [alteration._replace(operations=(QuotaOperation(BYTES, None),)) for alteration in given]
    decision = decide_quota_changes(image, taken)
    assert decision.operations == (
        SetNode("/config/users/a", tree.encode_config({})),
        DeleteNode("/config/users/a/clients/c"),
        DeleteNode("/config/clients/c"),
    )
    assert (decision.image.user_configs, decision.image.quota_configs) == ({"a": {}}, {"users/a/clients": {}})
    assert decide_quota_changes(decision.image, taken).operations == ()
    again = decide_quota_changes(decision.image, given[1:2])
    assert [type(operation) for operation in again.operations] == [CreateNode]


def test_a_refused_entity_does_not_change_and_others_do() -> None:
    alterations = [
        QuotaAlteration((("user", "a"),), (QuotaOperation(BYTES, 5.0), QuotaOperation("foo", 6.0))),
        wanted(("user", "b"), producer_byte_rate=5.0),
        QuotaAlteration((("user", "c"),), (QuotaOperation(BYTES, 5.0), QuotaOperation(BYTES, 6.0))),
        wanted(("user", "d"), producer_byte_rate=5.0),
        wanted(("user", "d"), producer_byte_rate=6.0),
        wanted(("user", "e"), ("user", "f"), producer_byte_rate=6.0),
    ]
    decision = decide_quota_changes(MetadataImage(), alterations)
    assert [(dict(each.parts)["user"], each.message) for each in decision.reply] == [
        ("a", "Invalid configuration key foo"),
        ("b", None),
        ("c", "Ignoring duplicate entity ClientQuotaEntity(entries={user=c})"),
        ("d", "Ignoring duplicate entity ClientQuotaEntity(entries={user=d})"),
        ("f", None),
    ]
    assert decision.image.user_configs == {"b": {BYTES: "5"}, "f": {BYTES: "6"}}


def test_damaged_node_keeps_its_last_known_quotas_and_is_not_written() -> None:
    known = MetadataImage(quota_configs={"clients/c": {BYTES: "5"}})
    image = load_image_leniently({"/config/clients/c": Node(b"{", 0, 1)}, known)
    assert (image.quota_configs, image.damaged) == ({"clients/c": {BYTES: "5"}}, {"/config/clients/c"})
    decision = decide_quota_changes(image, [wanted(("client-id", "c"), producer_byte_rate=6.0)])
    assert decision.reply[0].error is Error.KAFKA_STORAGE_ERROR
    assert decision.operations == ()


def test_deltas_contain_changed_quotas() -> None:
    old = decide_quota_changes(
        MetadataImage(),
        [wanted(("client-id", "c"), producer_byte_rate=5.0), wanted(("ip", None), connection_creation_rate=1.0)],
    ).image
    new = decide_quota_changes(
        old,
        [
            wanted(("client-id", "c"), producer_byte_rate=None),
            wanted(("user", "u"), ("client-id", "d"), producer_byte_rate=6.0),
        ],
    ).image
    delta = difference(old, new)
    assert [config.resource_name for config in delta.configs] == [
        "u",
        "clients/c",
        "users/u/clients",
        "users/u/clients/d",
    ]
    expected = {"ips/<default>": {"connection_creation_rate": "1"}, "users/u/clients/d": {BYTES: "6"}}
    assert apply_delta(apply_delta(MetadataImage(), snapshot(old)), delta).quota_configs == expected
    assert apply_delta(MetadataImage(), snapshot(new)).quota_configs == expected


def test_quotas_written_by_kafkas_tools_are_loaded() -> None:
    data = b'{"version":2,"entity_path":"users/u/clients/c"}'
    changed = external_changes.decode_changed_entity(data)
    assert changed == ("quotas", "users/u/clients/c")
    entities = external_changes.with_parents([changed])
    assert entities == [("users", "u"), ("quotas", "users/u/clients"), changed]
    nodes = {
        "/config/users/u": Node(b"", 0, 1),
        "/config/users/u/clients": Node(b"", 0, 1),
        "/config/users/u/clients/c": Node(tree.encode_config({BYTES: "5"}), 0, 1),
    }
    decision = external_changes.decide_external_configs(MetadataImage(), entities, nodes)
    assert decision.image.quota_configs == {"users/u/clients": {}, "users/u/clients/c": {BYTES: "5"}}
    assert decision.image.user_configs == {"u": {}}
    gone = external_changes.decide_external_configs(decision.image, [("quotas", "users/u/clients/c")], {})
    assert gone.image.quota_configs == {"users/u/clients": {}}
    older = b'{"version":1,"entity_type":"clients","entity_name":"c"}'
    assert external_changes.decode_changed_entity(older) == ("quotas", "clients/c")


def test_paths_and_entities() -> None:
    for entity in (
        of_user("a b"),
        of_user(None),
        of_client("ü/."),
        of_user_and_client("<default>", None),
        of_user_and_client(None, "x" * 10_000),
        of_address("10.0.0.1"),
    ):
        assert quota_entity(quota_path(entity)) == entity
    assert quota_entity("users/a/clients") is None
    assert [
        is_quota_path(path) for path in ("users/a", "users/a/clients", "users/a/b", "clients/", "ips/1", "topics/a")
    ] == [
        False,
        True,
        False,
        False,
        True,
        False,
    ]
