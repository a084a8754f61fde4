"""The layout of the metadata store: paths and JSON of every node, as Kafka 3.9 stores them in ZooKeeper (ZkData).

All functions are pure. Each `decode_*` accepts the nodes of any Kafka 3.x and raises DamagedNodeError for anything
else, because a damaged node must never be treated as an empty one.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.controller.image import BrokerImage, Endpoint, PartitionImage

BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
BROKER_SEQUENCE: Final = "/brokers/seqid"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"  # exists while reassignments of other tools are in progress
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
FEATURE: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
TOPS: Final = ("/brokers", CONFIG, "/admin", "/cluster", FEATURE, CONTROLLER, CONTROLLER_EPOCH)  # the roots of an image

TOPIC_CONFIG: Final = "topics"
BROKER_CONFIG: Final = "brokers"
GROUP_CONFIG: Final = "groups"
CLIENT_METRICS_CONFIG: Final = "client-metrics"
USER_CONFIG: Final = "users"
FREELY_NAMED: Final = frozenset({GROUP_CONFIG, CLIENT_METRICS_CONFIG})  # their names may contain any character
DEFAULT_ENTITY: Final = "<default>"

# Nodes that exist in every cluster, parents first.
SKELETON: Final = (
    "/brokers",
    BROKER_IDS,
    BROKER_TOPICS,
    BROKER_SEQUENCE,
    CONFIG,
    CONFIG_CHANGES,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/groups",
    "/config/client-metrics",
    "/admin",
    DELETE_TOPICS,
    "/cluster",
    "/consumers",
    "/isr_change_notification",
    "/log_dir_event_notification",
)

BROKER_NODE_VERSION: Final = 5
TOPIC_NODE_VERSION: Final = 3
CONTROLLER_NODE_VERSION: Final = 2
FEATURE_NODE_VERSION: Final = 2
FEATURES_ENABLED: Final = 1
ELIGIBLE: Final = "eligible_leader_replicas"  # Kafka in ZooKeeper mode ignores this key and the next ones
KNOWN_LIFE: Final = "known_broker_epoch"  # a broker that registered later may have lost records (broker_epochs.py)
LAST_KNOWN_ELIGIBLE: Final = "last_known_eligible_leader_replicas"

_json = json.JSONEncoder(separators=(",", ":"))


class DamagedNodeError(ValueError):
    """A node has invalid contents; the message contains its path."""


class TopicNode(NamedTuple):
    """The contents of a topic node: the topic id and the replicas of each partition."""

    topic_id: UUID | None
    replicas: dict[int, tuple[int, ...]]
    adding_replicas: dict[int, tuple[int, ...]]
    removing_replicas: dict[int, tuple[int, ...]]


class PartitionState(NamedTuple):
    """The contents of a partition's state node; the node's version is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = 0
    eligible: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()
    known_life: int = -1  # the newest broker epoch that the writer knew; -1: not recorded


class ProducerIdBlock(NamedTuple):
    """The newest allocated block of producer ids; both ends are inclusive."""

    broker: int
    block_start: int
    block_end: int


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, entity_name: str) -> str:
    """Return the path of a settings node. `entity_name` is "" for the default of all brokers, or of all users."""
    if entity_type == USER_CONFIG and entity_name:
        return f"{CONFIG}/{USER_CONFIG}/{sanitize(entity_name)}"
    if entity_type in FREELY_NAMED:
        from urllib.parse import quote  # noqa: PLC0415 (rarely needed, and slow to import)

        return f"{CONFIG}/{entity_type}/{quote(entity_name, safe='').replace('.', '%2E')}"
    return f"{CONFIG}/{entity_type}/{entity_name or DEFAULT_ENTITY}"


def config_entity(entity_type: str, node_name: str) -> str:
    """Return the entity name of a settings node: the inverse of config_path()."""
    if entity_type in FREELY_NAMED or (entity_type == USER_CONFIG and node_name != DEFAULT_ENTITY):
        from urllib.parse import unquote  # noqa: PLC0415

        return unquote(node_name)
    return "" if node_name == DEFAULT_ENTITY else node_name


def sanitize(name: str) -> str:
    """Encode a name as Kafka's Sanitizer does; "." and ".." are invalid node names, which Kafka does not handle."""
    from urllib.parse import quote  # noqa: PLC0415

    return quote(name, safe="").replace("~", "%7E") if name not in (".", "..") else name.replace(".", "%2E")


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def encode_broker(broker: BrokerImage, now_ms: int) -> bytes:
    """Encode a broker. Top-level host and port are those of the first PLAINTEXT listener, for old clients."""
    plain = next((endpoint for endpoint in broker.endpoints.values() if endpoint.protocol == "PLAINTEXT"), None)
    fields = {
        "version": BROKER_NODE_VERSION,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "endpoints": [f"{name}://{bracketed(end.host)}:{end.port}" for name, end in broker.endpoints.items()],
        "listener_security_protocol_map": {name: end.protocol for name, end in broker.endpoints.items()},
        "jmx_port": broker.jmx_port,
        "features": {
            name: {"min_version": lowest, "max_version": highest} for name, (lowest, highest) in broker.features.items()
        },
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    if broker.previous_epoch >= 0:  # Kafka in ZooKeeper mode ignores this key
        fields["previous_epoch"] = broker.previous_epoch
    return to_json(fields)


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerImage:
    """Decode a broker. `epoch` is the id of the transaction that created the node (the broker epoch)."""
    with reading(broker_path(broker_id)):
        fields = from_json(data)
        protocols = fields.get("listener_security_protocol_map", {})
        endpoints: dict[str, Endpoint] = {}
        for text in fields.get("endpoints") or [f"PLAINTEXT://{fields['host']}:{fields['port']}"]:
            name, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            endpoints[name] = Endpoint(host.strip("[]"), int32(port), str(protocols.get(name, name)))
        rack = str(fields["rack"]) if fields.get("rack") is not None else None
        previous = int(fields.get("previous_epoch", -1))
        features = {
            str(name): (int32(levels.get("min_version", 1), bits=16), int32(levels["max_version"], bits=16))
            for name, levels in (fields.get("features") or {}).items()
        }
        return BrokerImage(broker_id, endpoints, rack, epoch, int32(fields.get("jmx_port", -1)), previous, features)


def encode_topic(topic_id: UUID, partitions: Sequence[PartitionImage]) -> bytes:
    adding = {str(index): list(p.adding_replicas) for index, p in enumerate(partitions) if p.adding_replicas}
    removing = {str(index): list(p.removing_replicas) for index, p in enumerate(partitions) if p.removing_replicas}
    fields = {
        "version": TOPIC_NODE_VERSION,
        "topic_id": encode_uuid(topic_id),
        "partitions": {str(index): partition.replicas for index, partition in enumerate(partitions)},
        "adding_replicas": adding,
        "removing_replicas": removing,
    }
    return to_json(fields)


def decode_topic(topic: str, data: bytes) -> TopicNode:
    with reading(topic_path(topic)):
        fields = from_json(data)
        return TopicNode(
            decode_uuid(fields["topic_id"]) if "topic_id" in fields else None,
            decode_assignment(fields["partitions"]),
            decode_assignment(fields.get("adding_replicas", {})),
            decode_assignment(fields.get("removing_replicas", {})),
        )


def decode_assignment(fields: Mapping[str, Iterable[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(map(int32, replicas)) for index, replicas in fields.items()}


def encode_partition_state(state: PartitionState) -> bytes:
    """Encode a state, without a JSON encoder because thousands are written at once; the key order is fixed."""
    extra = f',"leader_recovery_state":{state.leader_recovery_state}' if state.leader_recovery_state else ""
    if state.eligible:
        extra += f',"{ELIGIBLE}":[{",".join(map(str, state.eligible))}]'
    if state.last_known_eligible:
        extra += f',"{LAST_KNOWN_ELIGIBLE}":[{",".join(map(str, state.last_known_eligible))}]'
    if state.known_life >= 0:
        extra += f',"{KNOWN_LIFE}":{state.known_life}'
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{",".join(map(str, state.isr))}]{extra}}}'
    ).encode()


def decode_partition_state(path: str, data: bytes) -> PartitionState:
    with reading(path):
        fields = from_json(data)
        return PartitionState(
            int32(fields["leader"]),
            int32(fields["leader_epoch"]),
            tuple(map(int32, fields["isr"])),
            int32(fields["controller_epoch"]),
            int(bool(int32(fields.get("leader_recovery_state", 0)))),
            tuple(map(int32, fields.get(ELIGIBLE, ()))),
            tuple(map(int32, fields.get(LAST_KNOWN_ELIGIBLE, ()))),
            int(fields.get(KNOWN_LIFE, -1)),
        )


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    fields = {"version": CONTROLLER_NODE_VERSION, "brokerid": broker_id, "timestamp": str(now_ms)}
    return to_json({**fields, "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    with reading(CONTROLLER):
        return int32(from_json(data)["brokerid"])


def encode_number(number: int) -> bytes:
    return str(number).encode()


def decode_number(path: str, data: bytes) -> int:
    with reading(path):
        return int32(data)


def decode_controller_epoch(data: bytes) -> int:
    return decode_number(CONTROLLER_EPOCH, data)


def encode_cluster_id(cluster_id: str) -> bytes:
    return to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    with reading(CLUSTER_ID):
        return str(from_json(data)["id"])


def encode_config(config: Mapping[str, str]) -> bytes:
    return to_json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    with reading(path):
        config = from_json(data).get("config", {}) if data else {}
        return {str(key): str(value) for key, value in config.items()}


def encode_config_change(entity_type: str, entity_name: str) -> bytes:
    return to_json({"version": 2, "entity_path": f"{entity_type}/{entity_name or DEFAULT_ENTITY}"})


def encode_reassignments(wanted: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    rows = [{"topic": name.topic, "partition": name.partition, "replicas": list(row)} for name, row in wanted.items()]
    return to_json({"version": 1, "partitions": rows})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the reassignments that tools of Kafka before 2.4 have written."""
    with reading(REASSIGN_PARTITIONS):
        return {partition_name(row): tuple(map(int, row["replicas"])) for row in from_json(data)["partitions"]}


def decode_election(data: bytes) -> list[TopicPartition]:
    """Return the partitions of a requested preferred leader election."""
    with reading(PREFERRED_ELECTION):
        return [partition_name(row) for row in from_json(data)["partitions"]]


def partition_name(row: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(str(row["topic"]), int(row["partition"]))


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    fields = {"version": 1, "broker": block.broker, "block_start": str(block.block_start)}
    return to_json({**fields, "block_end": str(block.block_end)})


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    with reading(PRODUCER_ID_BLOCK):
        fields = from_json(data)
        return ProducerIdBlock(fields["broker"], int(fields["block_start"]), int(fields["block_end"]))


def encode_feature(features: Mapping[str, int]) -> bytes:
    return to_json({"version": FEATURE_NODE_VERSION, "status": FEATURES_ENABLED, "features": dict(features)})


def decode_feature(data: bytes) -> dict[str, int]:
    """Return the finalized features; version 1 of the node has a range for each, of which the maximum is used."""
    with reading(FEATURE):
        features = from_json(data).get("features", {})
        return {str(name): int32(decode_level(level), bits=16) for name, level in features.items()}


def decode_level(level: Any) -> Any:
    return level["max_version_level"] if isinstance(level, dict) else level


def encode_uuid(value: UUID) -> str:
    """Return Kafka's text form of an id: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def int32(value: Any, bits: int = 32) -> int:
    """Return a number that fits into the field of a message."""
    number = int(value)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"{number} is out of range")
    return number


def to_json(fields: Mapping[str, Any]) -> bytes:
    return _json.encode(fields).encode()


def from_json(data: bytes) -> dict[str, Any]:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(fields).__name__} instead of an object")
    return fields


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn any decoding error inside into a DamagedNodeError for the node at `path`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedNodeError(f"{path} is damaged: {error!r}") from error


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
