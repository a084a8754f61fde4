"""Commands of dialogues about consumer groups (KIP-848), also with classic members.

NAME joins [as instance X]                 NAME beats epoch N [owning 0 1]        NAME leaves        NAME is away
NAME joins the classic way [owning 0 1]    NAME syncs generation N [: NAME=0,1]   NAME beats generation N
N ms pass          committed               restart         who                    t has N partitions
writes fail with ERROR                     writes work
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dialogues.dialogue import Dialogue, check_metadata_count
from tests.dialogues.topics import TOPIC, TOPIC_ID, OneTopic

from ottla.base.errors import Error
from ottla.groups.classic_group import RequestClient
from ottla.groups.coordinator_records import decode_record
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
    OwnedPartitions,
    Subscription,
    read_versioned,
    write_versioned,
)
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP = "g"
KINDS = {2: "classic", 3: "epoch", 5: "member", 6: "target of epoch", 7: "target", 8: "has", 16: "pattern"}
LEAVING, AWAY = -1, -2


class ConsumerDialogue(Dialogue):
    """One group named g that reads the topic t."""

    def __init__(self, settings: GroupSettings, is_held: bool) -> None:
        super().__init__(is_held)
        self.settings = settings
        self.topics = OneTopic()
        self._instances: dict[str, str] = {}
        self.restart()

    def restart(self) -> None:
        self.load(GroupCoordinator(self.settings, lambda _: None, lambda: self.topics))

    def check(self) -> None:
        check_metadata_count(self.machine)

    def describe_record(self, key: bytes, value: bytes | None) -> str:
        return describe_record(key, value)

    # ---- members of the new protocol

    def join(self, name: str, instance: str | None = None) -> None:
        if instance is not None:
            self._instances[name] = instance
        self._say(name, 0, [], is_whole=True)

    def beat(self, name: str, epoch: str, owned: str | None = None) -> None:
        held = None if owned is None else [int(each) for each in owned.split() if each != "nothing"]
        self._say(name, int(epoch), held)

    def leave(self, name: str) -> None:
        self._say(name, LEAVING, None)

    def go_away(self, name: str) -> None:
        self._say(name, AWAY, None)

    def _say(self, name: str, epoch: int, owned: list[int] | None, *, is_whole: bool = False) -> None:
        rows = None
        if owned is not None:
            rows = [HeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=owned)] if owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=epoch,
            instance_id=self._instances.get(name),
            rebalance_timeout_ms=60_000 if is_whole else -1,
            subscribed_topic_names=[TOPIC] if is_whole else None,
            topic_partitions=rows,
        )
        client = RequestClient(name, "/host")
        decision = self.machine.consumer_heartbeat(request, client, self.topics, self._to(name), self.now_ms)
        self.shard.execute(decision)

    # ---- classic members

    def join_classic(self, name: str, owned: str = "") -> None:
        held = [int(each) for each in owned.split()]
        subscription = Subscription(
            topics=[TOPIC], owned_partitions=[OwnedPartitions(topic=TOPIC, partitions=held)] if held else []
        )
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=name if self._knows(name) else "",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=write_versioned(subscription, 1))],
        )
        client = RequestClient(name, "/host", requires_known_member_id=False)
        self.shard.execute(self.machine.join(request, client, name, self._to(name), self.now_ms))

    def _knows(self, name: str) -> bool:
        classic, new = self.machine.groups.get(GROUP), self.machine.consumer.groups.get(GROUP)
        return any(group is not None and name in group.members for group in (classic, new))

    def sync(self, name: str, generation: str, plan: str = "") -> None:
        given = []
        for who, _, what in (each.partition("=") for each in plan.split()):
            rows = [OwnedPartitions(topic=TOPIC, partitions=[int(index) for index in what.split(",")])]
            data = write_versioned(Assignment(assigned_partitions=rows), 1)
            given.append(SyncGroupRequestAssignment(member_id=who, assignment=data))
        request = SyncGroupRequest(group_id=GROUP, generation_id=int(generation), member_id=name, assignments=given)
        self.shard.execute(self.machine.sync(request, self._to(name), self.now_ms))

    def beat_classic(self, name: str, generation: str) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=int(generation), member_id=name)
        response = self.machine.heartbeat(request, self.now_ms)
        self.print(f"{name}: {Error(response.error_code).name if response.error_code else 'fine'}")

    # ---- the world

    def grow(self, count: str) -> None:
        self.topics.grow(int(count))

    def describe(self) -> None:
        classic, group = self.machine.groups.get(GROUP), self.machine.consumer.groups.get(GROUP)
        if classic is not None:
            members = " ".join(classic.members) or "no members"
            self.print(f"classic, {classic.state.value}, generation {classic.generation}: {members}")
        if group is not None:
            self.print(f"{group.state}, epoch {group.group_epoch}, target of epoch {group.assignment_epoch}")
            for member in group.members.values():
                kind = "classic " if member.classic_metadata is not None else ""
                gives_up = (
                    f", gives up {places(member.partitions_pending_revocation)}"
                    if member.partitions_pending_revocation
                    else ""
                )
                owns = places(member.assigned_partitions)
                self.print(f"{kind}{member.member_id} epoch {member.member_epoch} has {owns}{gives_up}")
        if classic is None and group is None:
            self.print("no group")

    def _to(self, name: str) -> Callable[[Any], None]:
        return lambda response: self.print(f"{name}: {describe_response(response)}")


ConsumerDialogue.commands = [
    (r"(?P<name>\w+) joins the classic way(?: owning (?P<owned>[\d ]+))?", ConsumerDialogue.join_classic),
    (r"(?P<name>\w+) joins(?: as instance (?P<instance>\w+))?", ConsumerDialogue.join),
    (r"(?P<name>\w+) beats epoch (?P<epoch>\d+)(?: owning (?P<owned>[\w ]+))?", ConsumerDialogue.beat),
    (r"(?P<name>\w+) leaves", ConsumerDialogue.leave),
    (r"(?P<name>\w+) is away", ConsumerDialogue.go_away),
    (r"(?P<name>\w+) syncs generation (?P<generation>\d+)(?:: (?P<plan>.+))?", ConsumerDialogue.sync),
    (r"(?P<name>\w+) beats generation (?P<generation>\d+)", ConsumerDialogue.beat_classic),
    (r"(?P<milliseconds>\d+) ms pass", ConsumerDialogue.wait),
    (r"t has (?P<count>\d+) partitions", ConsumerDialogue.grow),
    (r"committed", ConsumerDialogue.release),
    (r"writes fail with (?P<error>\w+)", ConsumerDialogue.fail_writes),
    (r"writes work", ConsumerDialogue.let_write),
    (r"restart", ConsumerDialogue.restart),
    (r"who", ConsumerDialogue.describe),
]


def places(assignment: dict[Any, frozenset[int]]) -> str:
    return " ".join(str(each) for each in sorted(assignment.get(TOPIC_ID, ()))) or "nothing"


def describe_response(response: Any) -> str:
    """A short description of a response."""
    if response.error_code:
        return Error(response.error_code).name
    kind = type(response).__name__
    if kind == "JoinGroupResponse":
        return f"joined generation {response.generation_id}"
    if kind == "SyncGroupResponse":
        rows = read_versioned(Assignment, response.assignment).assigned_partitions if response.assignment else []
        return "assigned " + (" ".join(str(index) for row in rows for index in row.partitions) or "nothing")
    given = ""
    if response.assignment is not None:
        rows = {row.topic_id: frozenset(row.partitions) for row in response.assignment.topic_partitions}
        given = f", is given {places(rows)}"
    return f"epoch {response.member_epoch}{given}"


def describe_record(key: bytes, value: bytes | None) -> str:
    found = decode_record(key, value)
    assert found is not None
    kind, key_message, message = found
    words = [KINDS.get(kind, str(kind)), getattr(key_message, "member_id", "")]
    if message is None:
        words.append("forgotten")
    elif kind == 2:
        members = " ".join(each.member_id for each in message.members)
        words.append(f"generation {message.generation} {members or 'no members'}")
    elif kind == 3:
        words.append(str(message.epoch))
    elif kind == 6:
        words.append(str(message.assignment_epoch))
    elif kind == 7:
        words.append(places({row.topic_id: frozenset(row.partitions) for row in message.topic_partitions}))
    elif kind == 8:
        now, later = (
            places({row.topic_id: frozenset(row.partitions) for row in rows})
            for rows in (message.assigned_partitions, message.partitions_pending_revocation)
        )
        words.append(f"{now} in epoch {message.member_epoch}" + (f", gives up {later}" if later != "nothing" else ""))
    return " ".join(word for word in words if word)
