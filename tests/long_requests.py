"""Requests that are legal and long: for every array of every request one in which that array is long.

They are generated from the message classes, so that a new API or a new field is tried
without a change here. The rest of a request is such that a handler does not refuse it at the first look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.handlers.table import APIS
from ottla.protocol.apis import ALL_APIS, Api
from ottla.protocol.schema import ZERO_UUID, Field, Type, fields_in, layout_of

STRING_BYTES_MAX = 32_767
FieldPath = tuple[str, ...]

# Values of the fields that are not long: enough to pass the first checks.
PLAIN: dict[str, Any] = {
    "acks": 1,
    "timeout_ms": 30_000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 10,
    "fetch_offset": 0,
    "replica_id": -1,
    "replica_state": None,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "leader_epoch": 0,
    "last_fetched_epoch": -1,
    "timestamp": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": 0,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 5_000,
    "resource_type": 2,
    "max_version_level": 1,
    "upgrade_type": 1,
    "validate_only": True,
    "require_stable": True,
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": True,
    "include_authorized_operations": True,
    "include_synonyms": True,
    "include_documentation": True,
    "response_partition_limit": 2_000,
    "broker_id": 1,
    "endpoint_type": 1,
    "duration_filter": -1,
    "coordinator_epoch": 0,
    "client_software_name": "test",
    "client_software_version": "1",
    "config_operation": 0,
    "offset": 0,
    "committed_offset": 7,
    "member_id": "",
    "member": "",
    "server_assignor": None,
    "subscribed_topic_regex": None,
    "transactional_id_pattern": None,
    "cursor": None,
    "topic_regex": None,
    "path": "/nowhere",
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "resource_pattern_type": 3,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:alice",
    "host": "*",
}
TOPIC_FIELDS = {"topic", "topic_name", "resource_name", "subscribed_topic_names", "topic_names"}
TOPIC_ARRAYS = {"topics", "topic_data", "forgotten_topics_data", "v3_and_below_topics"}  # whose `name` is one
PARTITION_FIELDS = {"index", "partition", "partition_index", "partitions", "partition_indexes"}
GROUP_FIELDS = {"group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key"}
TRANSACTION_FIELDS = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
BROKER_FIELDS = {"replicas", "broker_ids", "new_isr"}
CONFIG_KEYS = ("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy")


class Naming(Enum):
    """The naming of the entries of the long array."""

    EXISTING = "existing"
    UNKNOWN = "unknown"
    REPEATED = "repeated"


class World(NamedTuple):
    """The objects that exist on the broker."""

    topics: list[tuple[str, UUID]]  # of one partition each
    wide: tuple[str, UUID]  # a topic of many partitions
    partitions: int  # how many it has
    group_id: str = "long"
    transactional_id: str = "long"
    producer_id: int = 1
    producer_epoch: int = 0
    records: bytes = b""


@dataclass(frozen=True)
class LongRequest:
    """One request, and its long field. It is built on demand: most are only inspected."""

    api: Api
    version: int
    path: FieldPath
    naming: Naming
    count: int
    world: World

    @cached_property
    def request(self) -> Any:
        return Maker(self.version, self.path, self.naming, self.count, self.world).make(self.api.request)

    @property
    def is_array(self) -> bool:
        """Or a long text."""
        cls: type = self.api.request
        for name in self.path:
            (type_,) = (field.type for field in fields_in(cls, self.version) if field.name == name)
            cls = element_class(type_) or cls
        return type_.kind == "array"

    @property
    def label(self) -> str:
        return f"{self.api.name} v{self.version} {'.'.join(self.path)} {self.naming.value}"


def served_apis(*, in_cluster: bool = False) -> list[Api]:
    return [ALL_APIS[row.key] for row in APIS if in_cluster or not row.is_inter_broker]


def long_requests(api: Api, count: int, world: World) -> Iterator[LongRequest]:
    """A request for each array of the API and each way to name things."""
    for version in telling_versions(api):
        for path in array_paths(api.request, version):
            for naming in Naming:
                yield LongRequest(api, version, path, naming, count, world)


def telling_versions(api: Api) -> list[int]:
    """Of versions with the same fields only the last."""
    lowest = max(api.min_version, layout_of(api.request).min_version)
    shapes = {tuple(all_paths(api.request, version)): version for version in range(lowest, api.max_version + 1)}
    return sorted(shapes.values())


def all_paths(cls: type, version: int) -> Iterator[FieldPath]:
    for field in fields_in(cls, version):
        yield (field.name,)
        struct_class = element_class(field.type)
        if struct_class is not None:
            yield from ((field.name, *path) for path in all_paths(struct_class, version))


def array_paths(cls: type, version: int) -> Iterator[FieldPath]:
    """Every array, at any depth; and strings and bytes, which can be long, too."""
    for field in fields_in(cls, version):
        if field.type.kind in ("array", "string", "bytes"):
            yield (field.name,)
        struct_class = element_class(field.type)
        if struct_class is not None:
            yield from ((field.name, *path) for path in array_paths(struct_class, version))


def element_class(type_: Type) -> type | None:
    while type_.kind == "array":
        type_ = type_.array_item
    return type_.struct_class if type_.kind == "struct" else None


class Maker:
    """Makes one request. The structs on the way to what is long are there once, the long one `count` times."""

    def __init__(self, version: int, path: FieldPath, naming: Naming, count: int, world: World) -> None:
        self._version = version
        self._path = path
        self._naming = naming
        self._count = count
        self._world = world
        self._is_wide = path[-1] in PARTITION_FIELDS  # a long list of partitions is that of one topic

    def make(self, cls: type) -> Any:
        return self._struct(cls, (), 0)

    def _struct(self, cls: type, path: FieldPath, number: int) -> Any:
        values = {}
        for field in fields_in(cls, self._version):
            values[field.name] = self._field(field, (*path, field.name), number)
        if "topic_id" in values and values.get("name"):
            values["topic_id"] = ZERO_UUID  # a topic is named in one way
        return cls(**values)

    def _field(self, field: Field, path: FieldPath, number: int) -> Any:
        is_long = path == self._path
        if field.type.kind == "array":
            return self._array(field, path, number, is_long)
        if is_long:
            letter = {"string": STRING_BYTES_MAX, "bytes": 30 * self._count}[field.type.kind]
            return "x" * letter if field.type.kind == "string" else b"x" * letter
        return self._single(field.name, field.type, field.nullable, path, number)

    def _array(self, field: Field, path: FieldPath, number: int, is_long: bool) -> list[Any]:
        item = field.type.array_item
        times = self._count if is_long else 1
        if item.kind == "struct":
            return [self._struct(item.struct_class, path, each if is_long else number) for each in range(times)]
        return [self._single(field.name, item, False, path, each if is_long else number) for each in range(times)]

    def _single(self, name: str, type_: Type, nullable: bool, path: FieldPath, number: int) -> Any:
        world = self._world
        named = self._named(name, path, number)
        if named is not None:
            return named
        if name == "producer_id" or name.endswith("_producer_id"):
            return world.producer_id
        if name == "producer_epoch" or name.endswith("_producer_epoch"):
            return world.producer_epoch
        if name in PLAIN:
            return PLAIN[name]
        match type_.kind:
            case "struct":
                return self._struct(type_.struct_class, path, number)
            case "records":
                return memoryview(world.records)
            case "string":
                return None if nullable else self._text(number)
            case "bytes":
                return b""
            case "uuid":
                return ZERO_UUID
            case "bool":
                return False
        return number % 100 if type_.kind == "int8" else number

    def _named(self, name: str, path: FieldPath, number: int) -> Any:
        """Names of things that exist, or might."""
        parent = path[-2] if len(path) > 1 else ""
        world = self._world
        is_unknown = self._naming is Naming.UNKNOWN
        if name in TOPIC_FIELDS or (name == "name" and parent in TOPIC_ARRAYS):
            return self._text(number) if is_unknown and not self._is_wide else self._topic(number)[0]
        if name == "topic_id":
            return UUID(int=number + 1) if is_unknown and not self._is_wide else self._topic(number)[1]
        if name in PARTITION_FIELDS:
            return self._partition(number)
        if name in GROUP_FIELDS:
            return self._text(number) if is_unknown else world.group_id
        if name in TRANSACTION_FIELDS:
            return None if path == ("transactional_id",) and self._path[0] == "topic_data" else world.transactional_id
        if name in BROKER_FIELDS:
            return self._spread(number, 3) + 1
        if name == "name" and parent == "configs":
            return self._text(number) if is_unknown else CONFIG_KEYS[self._spread(number, len(CONFIG_KEYS))]
        return None

    def _topic(self, number: int) -> tuple[str, UUID]:
        if self._is_wide:
            return self._world.wide
        return self._world.topics[self._spread(number, len(self._world.topics))]

    def _partition(self, number: int) -> int:
        if not self._is_wide:
            return 0
        return 100_000 + number if self._naming is Naming.UNKNOWN else self._spread(number, self._world.partitions)

    def _spread(self, number: int, size: int) -> int:
        return 0 if self._naming is Naming.REPEATED else number % size

    def _text(self, number: int) -> str:
        return "nobody" if self._naming is Naming.REPEATED else f"nobody-{number}"
