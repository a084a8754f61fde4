"""Commands of dialogues about classic groups.

NAME joins [as MEMBER] [instance X] [protocols p,q] [session N] [v3|v9]
NAME syncs generation N [MEMBER=assignment ...]
NAME beats generation N            NAME leaves             instance X leaves
NAME commits TOPIC-P=OFFSET generation N                    outsider commits TOPIC-P=OFFSET
N ms pass          committed       writes fail with ERROR  writes work        restart        sessions restart
who                (the group as DescribeGroups tells)      offsets           delete group
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dialogues.dialogue import Dialogue, check_metadata_count
from tests.dialogues.topics import OneTopic

from ottla.base.errors import Error
from ottla.coordination.machine import Decision, Reply
from ottla.groups.classic_group import RequestClient
from ottla.groups.coordinator_records import decode_record
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.offsets import unpack_offset
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP = "g"


class ClassicDialogue(Dialogue):
    """One group named g."""

    def __init__(self, settings: GroupSettings, is_held: bool) -> None:
        super().__init__(is_held)
        self.settings = settings
        self.member_ids: dict[str, str] = {}  # short name in the dialogue -> member id
        self.instances: dict[str, str] = {}
        self._fresh = 0
        self.restart()

    def restart(self) -> None:
        self.load(GroupCoordinator(self.settings, lambda _: None, OneTopic))

    def check(self) -> None:
        check_metadata_count(self.machine)

    def describe_record(self, key: bytes, value: bytes | None) -> str:
        return describe_record(key, value)

    # ---- commands

    def renew_sessions(self) -> None:
        self.machine.renew_sessions(self.now_ms)

    def join(
        self,
        name: str,
        instance: str | None = None,
        protocols: str = "range",
        session: str = "10000",
        version: str = "9",
        type: str = "consumer",  # noqa: A002
        metadata: str = "",
    ) -> None:
        if instance is not None:
            self.instances[name] = instance
        self._fresh += 1
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(session),
            rebalance_timeout_ms=60_000,
            member_id=self.member_ids.get(name, ""),
            group_instance_id=self.instances.get(name),
            protocol_type=type,
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=(metadata or name).encode())
                for each in protocols.split(",")
                if each != "-"
            ],
        )
        client = RequestClient(name, "/host", int(version) >= 4, int(version) >= 9)
        decision = self.machine.join(request, client, f"{name}{self._fresh}", self._to(name), self.now_ms)
        self.shard.execute(decision)

    def sync(self, name: str, generation: str, plan: str = "") -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(generation),
            member_id=self.member_ids.get(name, name),
            group_instance_id=self.instances.get(name),
            assignments=[
                SyncGroupRequestAssignment(member_id=self.member_ids.get(who, who), assignment=what.encode())
                for who, _, what in (each.partition("=") for each in plan.split())
            ],
        )
        self.shard.execute(self.machine.sync(request, self._to(name), self.now_ms))

    def beat(self, name: str, generation: str) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(generation),
            member_id=self.member_ids.get(name, name),
            group_instance_id=self.instances.get(name),
        )
        self._to(name)(self.machine.heartbeat(request, self.now_ms))

    def leave(self, name: str) -> None:
        member = MemberIdentity(member_id=self.member_ids.get(name, name), group_instance_id=self.instances.get(name))
        self._leave(name, member)

    def leave_instance(self, instance: str) -> None:
        self._leave("admin", MemberIdentity(member_id="", group_instance_id=instance))

    def _leave(self, name: str, member: MemberIdentity) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[member])
        self.shard.execute(self.machine.leave(request, self._to(name), self.now_ms))

    def commit(self, name: str, topic: str, partition: str, offset: str, generation: str = "-1") -> None:
        row = OffsetCommitRequestPartition(partition_index=int(partition), committed_offset=int(offset))
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=int(generation),
            member_id=self.member_ids.get(name, ""),
            group_instance_id=self.instances.get(name),
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        self.shard.execute(self.machine.offset_manager.commit(request, self._to(name), self.now_ms))

    def describe(self) -> None:
        group = self.machine.describe(GROUP)
        if group is None:
            self.print("no group")
            return
        members = " ".join(f"{member.member_id}={member.member_assignment.decode() or '-'}" for member in group.members)
        live = self.machine.groups[GROUP]
        self.print(f"{group.group_state}, generation {live.generation}, {members or 'no members'}")

    def show_offsets(self) -> None:
        for topic, partitions in self.machine.offsets.topics(GROUP).items():
            for partition, kept in partitions.items():
                self.print(f"{topic}-{partition}={unpack_offset(kept).offset}")

    def delete(self) -> None:
        records, error, _ = self.machine.delete_group(GROUP)
        self.shard.execute(Decision(records, [Reply(lambda code: self.print(f"admin: {Error(code).name}"), error)]))

    def _to(self, name: str) -> Callable[[Any], None]:
        def answered(response: Any) -> None:
            if getattr(response, "member_id", ""):
                self.member_ids[name] = response.member_id
            self.print(f"{name}: {describe_response(response)}")

        return answered


JOINS = (
    r"(?P<name>\w+) joins(?: type (?P<type>\S+))?(?: instance (?P<instance>\w+))?(?: protocols (?P<protocols>\S+))?"
    r"(?: session (?P<session>-?\d+))?(?: metadata (?P<metadata>\w+))?(?: v(?P<version>\d+))?"
)
ClassicDialogue.commands = [
    (
        JOINS,
        ClassicDialogue.join,
    ),
    (r"(?P<name>\w+) syncs generation (?P<generation>-?\d+)(?::? (?P<plan>.+))?", ClassicDialogue.sync),
    (r"(?P<name>\w+) beats generation (?P<generation>-?\d+)", ClassicDialogue.beat),
    (r"instance (?P<instance>\w+) leaves", ClassicDialogue.leave_instance),
    (r"(?P<name>\w+) leaves", ClassicDialogue.leave),
    (
        r"(?P<name>\w+) commits (?P<topic>\w+)-(?P<partition>\d+)=(?P<offset>\d+)(?: generation (?P<generation>\d+))?",
        ClassicDialogue.commit,
    ),
    (r"(?P<milliseconds>\d+) ms pass", ClassicDialogue.wait),
    (r"committed", ClassicDialogue.release),
    (r"writes fail with (?P<error>\w+)", ClassicDialogue.fail_writes),
    (r"writes work", ClassicDialogue.let_write),
    (r"restart", ClassicDialogue.restart),
    (r"sessions restart", ClassicDialogue.renew_sessions),
    (r"who", ClassicDialogue.describe),
    (r"offsets", ClassicDialogue.show_offsets),
    (r"delete group", ClassicDialogue.delete),
]


def describe_response(response: Any) -> str:
    """A short description of a response."""
    members = list(getattr(response, "members", []))
    if type(response).__name__ == "LeaveGroupResponse" and response.error_code == 0:
        return " ".join(
            f"left {row.member_id or row.group_instance_id} {Error(row.error_code).name}" for row in members
        )
    if type(response).__name__ == "OffsetCommitResponse":
        return " ".join(Error(row.error_code).name for topic in response.topics for row in topic.partitions)
    if response.error_code != Error.NONE:
        given = f", you are {response.member_id}" if response.error_code == Error.MEMBER_ID_REQUIRED else ""
        return Error(response.error_code).name + given
    if type(response).__name__ == "JoinGroupResponse":
        known = f", members {' '.join(row.member_id for row in members)}" if members else ""
        skip = ", do not assign" if response.skip_assignment else ""
        return (
            f"joined generation {response.generation_id} as {response.member_id}, leader {response.leader}{known}{skip}"
        )
    if type(response).__name__ == "SyncGroupResponse":
        return f"assigned {response.assignment.decode() or 'nothing'}"
    return "fine"


def describe_record(key: bytes, value: bytes | None) -> str:
    found = decode_record(key, value)
    assert found is not None
    kind, key_message, value_message = found
    if kind == 2:
        if value_message is None:
            return "group forgotten"
        members = " ".join(f"{row.member_id}={row.assignment.decode() or '-'}" for row in value_message.members)
        return f"group generation {value_message.generation} {members or 'no members'}"
    place = f"{key_message.topic}-{key_message.partition}"
    return f"offset {place} {'forgotten' if value_message is None else value_message.offset}"
