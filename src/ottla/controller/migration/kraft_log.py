"""Reads the metadata log of a KRaft cluster: topics with ids and settings, ACLs, SCRAM credentials, quotas, tokens.

The newest snapshot is read first, then the log after it. Only the metadata that an import needs are kept. Records of
known types that cannot be decoded are reported: a missing ACL may be one that denies access.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from ottla.base.errors import KafkaError
from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.controller.decisions.quota_changes import EntityParts
from ottla.protocol.batches import read_records
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.messages.metadata_records import (
    FRAME_VERSION,
    METADATA_RECORDS,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.primitives import read_uvarint
from ottla.security.acls import AccessControlEntry, AclBinding, Acls, ResourcePattern, group_by_pattern
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.scram_credentials import MECHANISMS, ScramCredential
from ottla.storage import files
from ottla.storage.partition_dir import base_offsets_of, list_files
from ottla.storage.scan import CONTROL_FLAG, BatchScan

TOPIC_RESOURCE: Final = 2
SNAPSHOT_NAME: Final = re.compile(r"^(\d{20})-\d{10}\.checkpoint$")


class KraftTopic:
    """A topic in the metadata log."""

    def __init__(self, name: str, topic_id: UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = 0

    def __repr__(self) -> str:
        return f"<KraftTopic {self.name}, {self.partition_count} partitions>"


class KraftMetadata:
    """The metadata after replay of the records; apply() must be called in their order."""

    def __init__(self) -> None:
        self.topics: dict[UUID, KraftTopic] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, DelegationToken] = {}
        self.next_producer_id = 0
        self.rules: dict[UUID, AclBinding] = {}
        self.users: dict[str, dict[str, str]] = {}  # user -> mechanism -> credential
        self.quotas: dict[EntityParts, dict[str, float]] = {}
        self.unreadable_records: list[str] = []

    def apply(self, record: Any) -> None:
        match record:
            case TopicRecord():
                self.topics[record.topic_id] = KraftTopic(record.name, record.topic_id)
            case PartitionRecord():
                topic = self.topics.get(record.topic_id)
                if topic is not None:
                    topic.partition_count = max(topic.partition_count, record.partition_id + 1)
            case RemoveTopicRecord():
                removed = self.topics.pop(record.topic_id, None)
                if removed is not None:
                    self.configs.pop(removed.name, None)
            case ConfigRecord() if record.resource_type == TOPIC_RESOURCE:
                self._apply_config(record)
            case ClientQuotaRecord():
                self._apply_quota(record)
            case ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case _:
                self._apply_right(record)

    def _apply_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(
            sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda part: part[0])
        )
        limits = self.quotas.setdefault(entity, {})
        limits.pop(record.key, None)
        if not record.remove:
            limits[record.key] = record.value
        elif not limits:
            del self.quotas[entity]

    def _apply_right(self, record: Any) -> None:
        try:
            match record:
                case AccessControlEntryRecord():
                    self.rules[record.id] = binding_of(record)
                case RemoveAccessControlEntryRecord():
                    self.rules.pop(record.id, None)
                case UserScramCredentialRecord():
                    credential = ScramCredential(
                        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
                    )
                    self.users.setdefault(record.name, {})[MECHANISMS[record.mechanism]] = credential.to_text()
                case RemoveUserScramCredentialRecord():
                    self.users.get(record.name, {}).pop(MECHANISMS[record.mechanism], None)
                case DelegationTokenRecord():
                    self.tokens[record.token_id] = DelegationToken(
                        record.token_id,
                        record.owner,
                        record.requester,
                        tuple(record.renewers),
                        record.issue_timestamp,
                        record.max_timestamp,
                        record.expiration_timestamp,
                    )
                case RemoveDelegationTokenRecord():
                    self.tokens.pop(record.token_id, None)
        except (ValueError, KeyError) as problem:
            self.unreadable_records.append(f"{type(record).__name__}: {problem}")

    @property
    def acls(self) -> Acls:
        return group_by_pattern(self.rules.values())

    def configs_of(self, topic: str) -> dict[str, str]:
        return self.configs.get(topic, {})

    def _apply_config(self, record: ConfigRecord) -> None:
        configs = self.configs.setdefault(record.resource_name, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def __repr__(self) -> str:
        return f"<KraftMetadata {len(self.topics)} topics, producer ids from {self.next_producer_id}>"


def read_kraft_log(directory: str) -> KraftMetadata:
    """Read the directory of the metadata partition, up to a damaged tail."""
    metadata = KraftMetadata()
    sizes = list_files(directory)
    snapshots = sorted(name for name in sizes if SNAPSHOT_NAME.match(name))
    start_offset = 0
    if snapshots:
        start_offset = int(snapshots[-1][: files.OFFSET_DIGITS])
        apply_file(metadata, f"{directory}/{snapshots[-1]}", 0)
    for base_offset in base_offsets_of(sizes, files.LOG_SUFFIX):
        apply_file(metadata, files.segment_path(directory, base_offset, files.LOG_SUFFIX), start_offset)
    return metadata


def apply_file(metadata: KraftMetadata, path: str, start_offset: int) -> None:
    with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
        scan = BatchScan(descriptor, 0, os.fstat(descriptor).st_size, True)
        while scan.advance():
            if scan.attributes & CONTROL_FLAG or scan.last_offset < start_offset:
                continue
            for value in record_values(scan.batch()):
                try:
                    record = decode_value(memoryview(value))
                except (KafkaError, ProtocolError) as problem:
                    metadata.unreadable_records.append(f"{path}: {problem}")
                else:
                    metadata.apply(record)


def record_values(batch: bytes) -> Iterator[bytes]:
    try:
        for record in read_records(batch):
            if record.value is not None:
                yield record.value
    except (KafkaError, ProtocolError):
        return


def binding_of(record: AccessControlEntryRecord) -> AclBinding:
    """Decode an ACL. Raises ValueError for an unknown type of resource or operation."""
    pattern = ResourcePattern(
        ResourceType(record.resource_type), record.resource_name, PatternType(record.pattern_type)
    )
    permission = Permission(record.permission_type)
    return AclBinding(
        pattern, AccessControlEntry(record.principal, record.host, Operation(record.operation), permission)
    )


def decode_value(value: memoryview) -> Any | None:
    """Decode a record; None for types that are not needed."""
    frame_version, position = read_uvarint(value, 0)
    kind, position = read_uvarint(value, position)
    version, position = read_uvarint(value, position)
    message_class = METADATA_RECORDS.get(kind)
    if frame_version != FRAME_VERSION or message_class is None:
        return None
    return decode(message_class, version, value, position)[0]
