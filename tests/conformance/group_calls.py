"""The requests of groups in all their versions, spoken through kafka-python's message classes (not ours).

The two APIs of the new protocol, which kafka-python lacks, are written out byte by byte.
"""

import struct
import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from tests.conformance.peer import COORDINATOR_LOAD_IN_PROGRESS, Peer
from tests.conformance.raw import array, compact_array, compact_string, i16, i32, string, uvarint

RANGE = {"range": b"r"}
WAIT_SECONDS_MAX = 20.0


class GroupCalls:
    """Says what members and administrators of one group say, through one connection."""

    def __init__(self, peer: Peer, group: str) -> None:
        self.peer = peer
        self.group = group

    # ---- membership

    def join_request(
        self,
        member_id: str = "",
        *,
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
        protocol_type: str = "consumer",
        protocols: dict[str, bytes] | None = None,
        instance_id: str | None = None,
    ) -> JoinGroupRequest:
        named = RANGE if protocols is None else protocols
        shape = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[shape(name=name, metadata=metadata) for name, metadata in named.items()],
            reason=None,
        )

    def join(self, member_id: str = "", version: int = 9, **options: Any) -> Any:
        return self.peer.ask(self.join_request(member_id, **options), version, WAIT_SECONDS_MAX)

    def enter(self, version: int = 9, **options: Any) -> Any:
        """Join as a client does: ask for an id first where the version wants that."""
        answer = self.join("", version, **options)
        return self.join(answer.member_id, version, **options) if answer.error_code == 79 else answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        version: int = 5,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Any:
        shape = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[shape(member_id=each, assignment=data) for each, data in (assignments or {}).items()],
        )
        return self.peer.ask(request, version, WAIT_SECONDS_MAX)

    def stable_member(self, version: int = 9, **options: Any) -> tuple[str, int]:
        """The only member of a group that is at work: its id and generation."""
        joined = self.enter(version, **options)
        assert joined.error_code == 0, joined
        named = next(iter(options.get("protocols") or RANGE))
        synced = self.sync(
            joined.member_id,
            joined.generation_id,
            {joined.member_id: b"all"},
            instance_id=options.get("instance_id"),
            protocol_type=options.get("protocol_type", "consumer"),
            protocol_name=named,
        )
        assert synced.error_code == 0, synced
        return joined.member_id, joined.generation_id

    def heartbeat(self, member_id: str, generation: int, version: int = 4, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return int(self.peer.ask(request, version).error_code)

    def leave(self, *leavers: tuple[str, str | None], version: int = 5) -> Any:
        """Members as (member id, instance id)."""
        shape = LeaveGroupRequest.MemberIdentity
        members = [shape(member_id=each, group_instance_id=instance, reason=None) for each, instance in leavers]
        only = leavers[0][0] if leavers else ""
        return self.peer.ask(LeaveGroupRequest(group_id=self.group, member_id=only, members=members), version)

    # ---- offsets

    def commit_request(
        self,
        offsets: dict[str | uuid.UUID, dict[int, int]],
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
    ) -> OffsetCommitRequest:
        topic_shape = OffsetCommitRequest.OffsetCommitRequestTopic
        row_shape = topic_shape.OffsetCommitRequestPartition
        topics = []
        for topic, rows in offsets.items():
            partitions = [
                row_shape(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata=metadata,
                )
                for index, offset in rows.items()
            ]
            topics.append(topic_shape(**by_name_or_id(topic), partitions=partitions))
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=-1,
            topics=topics,
        )

    def commit(
        self, offsets: dict[str | uuid.UUID, dict[int, int]], version: int = 9, **options: Any
    ) -> dict[Any, dict[int, int]]:
        """Topic (name, or id since version 10) -> partition -> error."""
        answer = self.peer.ask(self.commit_request(offsets, **options), version)
        return {
            (topic.topic_id if version >= 10 else topic.name): {
                row.partition_index: row.error_code for row in topic.partitions
            }
            for topic in answer.topics
        }

    def fetch_offsets(
        self,
        wanted: dict[Any, list[int]] | None,
        version: int = 9,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Any:
        """The answer for this group: a group of version 8 and later, the whole answer before."""
        if version < 8:
            shape = OffsetFetchRequest.OffsetFetchRequestTopic
            topics = None if wanted is None else [shape(name=t, partition_indexes=p) for t, p in wanted.items()]
            request = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=require_stable)
            return self.peer.ask(request, version)
        group_shape = OffsetFetchRequest.OffsetFetchRequestGroup
        topic_shape = group_shape.OffsetFetchRequestTopics
        rows = None
        if wanted is not None:
            rows = [topic_shape(**by_name_or_id(topic), partition_indexes=indexes) for topic, indexes in wanted.items()]
        group = group_shape(group_id=self.group, member_id=member_id, member_epoch=member_epoch, topics=rows)
        return self.peer.ask(OffsetFetchRequest(groups=[group], require_stable=require_stable), version).groups[0]

    def committed(self, topic: str, partition: int = 0) -> int:
        """Waits while the coordinator is loading."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while (answer := self.fetch_offsets({topic: [partition]})).error_code == COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return int(answer.topics[0].partitions[0].committed_offset)

    def delete_offsets(self, wanted: dict[str, list[int]]) -> tuple[int, dict[str, dict[int, int]]]:
        shape = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            shape(name=topic, partitions=[shape.OffsetDeleteRequestPartition(partition_index=i) for i in indexes])
            for topic, indexes in wanted.items()
        ]
        answer = self.peer.ask(OffsetDeleteRequest(group_id=self.group, topics=topics), 0)
        rows = {t.name: {row.partition_index: row.error_code for row in t.partitions} for t in answer.topics}
        return answer.error_code, rows

    # ---- administration

    def describe(self, version: int = 6, *, operations: bool = False) -> Any:
        request = DescribeGroupsRequest(groups=[self.group], include_authorized_operations=operations)
        return self.peer.ask(request, version).groups[0]

    def delete(self, version: int = 2) -> int:
        return int(self.peer.ask(DeleteGroupsRequest(groups_names=[self.group]), version).results[0].error_code)

    def listed(self, version: int = 5, states: Iterable[str] = (), types: Iterable[str] = ()) -> Any | None:
        """How ListGroups shows this group, if it does."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = self.peer.ask(request, version)
        assert answer.error_code == 0
        return next((row for row in answer.groups if row.group_id == self.group), None)

    # ---- the new protocol

    def consumer_heartbeat(self, member_id: str, epoch: int, version: int = 1, **options: Any) -> "Beat":
        body = consumer_heartbeat_body(self.group, member_id, epoch, version, **options)
        correlation_id = self.peer.connection.send_request(68, version, body, flexible_header=True)
        frame = self.peer.connection.read_frame()
        assert struct.unpack(">i", frame[:4]) == (correlation_id,)
        return read_beat(Reader(frame[5:]))

    def consumer_join(self, member_id: str, topics: list[str] | None, **options: Any) -> "Beat":
        return self.consumer_heartbeat(
            member_id, 0, topics=topics, owned={}, rebalance_ms=options.pop("rebalance_ms", 30_000), **options
        )

    def consumer_describe(self, version: int = 1) -> "DescribedGroup":
        body = compact_array([compact_string(self.group)]) + b"\0" + uvarint(0)
        correlation_id = self.peer.connection.send_request(69, version, body, flexible_header=True)
        frame = self.peer.connection.read_frame()
        assert struct.unpack(">i", frame[:4]) == (correlation_id,)
        return read_description(Reader(frame[5:]), version)


class Beat(NamedTuple):
    """An answer to ConsumerGroupHeartbeat; without an assignment in it, `assigned` is None."""

    error: int
    message: str | None
    member_id: str | None
    epoch: int
    interval_ms: int
    assigned: dict[uuid.UUID, list[int]] | None


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: list[str]
    regex: str | None
    assigned: dict[str, list[int]]
    target: dict[str, list[int]]
    member_type: int


class DescribedGroup(NamedTuple):
    error: int
    message: str | None
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: list[DescribedMember]


def find_coordinator(peer: Peer, key: str, key_type: int = 0, version: int = 6) -> Any:
    """The row of this key: the answer itself before version 4."""
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    answer = peer.ask(request, version)
    return answer.coordinators[0] if version >= 4 else answer


def by_name_or_id(topic: str | uuid.UUID) -> dict[str, Any]:
    return {"name": topic} if isinstance(topic, str) else {"topic_id": topic}


def consumer_heartbeat_body(
    group: str,
    member_id: str,
    epoch: int,
    version: int,
    *,
    instance_id: str | None = None,
    rack_id: str | None = None,
    rebalance_ms: int = -1,
    topics: list[str] | None = None,
    regex: str | None = None,
    assignor: str | None = None,
    owned: dict[uuid.UUID, list[int]] | None = None,
) -> bytes:
    parts = [compact_string(group), compact_string(member_id), i32(epoch), compact_string(instance_id)]
    parts += [compact_string(rack_id), i32(rebalance_ms)]
    parts.append(uvarint(0) if topics is None else compact_array([compact_string(topic) for topic in topics]))
    if version >= 1:
        parts.append(compact_string(regex))
    parts.append(compact_string(assignor))
    if owned is None:
        parts.append(uvarint(0))
    else:
        rows = [t.bytes + compact_array([i32(i) for i in indexes]) + uvarint(0) for t, indexes in owned.items()]
        parts.append(compact_array(rows))
    return b"".join(parts) + uvarint(0)


class Reader:
    """Takes the fields of a flexible message one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def size(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]

    def text(self) -> str | None:
        size = self.size()
        return self.take(size - 1).decode() if size else None

    def required_text(self) -> str:
        value = self.text()
        assert value is not None
        return value

    def tags(self) -> None:
        assert self.size() == 0


def read_beat(reader: Reader) -> Beat:
    reader.number("i")  # throttle time
    error, message, member_id = reader.number("h"), reader.text(), reader.text()
    epoch, interval_ms = reader.number("i"), reader.number("i")
    assigned = None
    if reader.number("b") >= 0:
        assigned = {}
        for _ in range(reader.size() - 1):
            topic_id = uuid.UUID(bytes=reader.take(16))
            assigned[topic_id] = sorted(reader.number("i") for _ in range(reader.size() - 1))
            reader.tags()
        reader.tags()
    reader.tags()
    assert reader.position == len(reader.data)
    return Beat(error, message, member_id, epoch, interval_ms, assigned)


def read_description(reader: Reader, version: int) -> DescribedGroup:
    reader.number("i")
    assert reader.size() == 2
    error, message, group_id, state = reader.number("h"), reader.text(), reader.required_text(), reader.required_text()
    epoch, assignment_epoch, assignor = reader.number("i"), reader.number("i"), reader.required_text()
    members = [_read_member(reader, version) for _ in range(reader.size() - 1)]
    assert reader.number("i") == -(2**31)  # authorized operations were not asked for
    reader.tags()
    reader.tags()
    assert reader.position == len(reader.data)
    return DescribedGroup(error, message, group_id, state, epoch, assignment_epoch, assignor, members)


def _read_member(reader: Reader, version: int) -> DescribedMember:
    member = DescribedMember(
        reader.required_text(),
        reader.text(),
        reader.text(),
        reader.number("i"),
        reader.required_text(),
        reader.required_text(),
        [reader.required_text() for _ in range(reader.size() - 1)],
        reader.text(),
        _read_assignment(reader),
        _read_assignment(reader),
        reader.number("b") if version >= 1 else -1,
    )
    reader.tags()
    return member


def _read_assignment(reader: Reader) -> dict[str, list[int]]:
    assigned = {}
    for _ in range(reader.size() - 1):
        reader.take(16)
        name = reader.required_text()
        assigned[name] = sorted(reader.number("i") for _ in range(reader.size() - 1))
        reader.tags()
    reader.tags()
    return assigned


def subscription(
    *topics: str, version: int = 0, owned: dict[str, list[int]] | None = None, generation: int = -1
) -> bytes:
    """What a consumer puts into its JoinGroup: version, topics, user data; since 1 what it owns, since 2 since when."""
    data = i16(version) + array([string(topic) for topic in topics]) + i32(-1)
    if version >= 1:
        data += partitions_of(owned or {})
    if version >= 2:
        data += i32(generation)
    return data + (string(None) if version >= 3 else b"")


def assignment(partitions: dict[str, list[int]], version: int = 0) -> bytes:
    """What the leader of a classic group gives to a consumer."""
    return i16(version) + partitions_of(partitions) + i32(-1)


def partitions_of(topics: dict[str, list[int]]) -> bytes:
    return array([string(topic) + array([i32(index) for index in indexes]) for topic, indexes in topics.items()])
