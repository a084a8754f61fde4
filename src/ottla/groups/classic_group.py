"""One group of the classic protocol: who is in it, in which state it is, which assignment they share.

Pure bookkeeping without time or replies; classic.py decides what happens when. The states and where they lead:

    EMPTY ──join──► PREPARING_REBALANCE ──all joined──► COMPLETING_REBALANCE ──leader's assignment──► STABLE
      ▲                 ▲        │                              │                                      │
      └─nobody joined───┼────────┘                              │ join, leave, failure                 │
                        └───────────────────────────────────────┴──────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ottla.coordination.machine import ReplyTo
from ottla.protocol.messages.groups import JoinGroupRequestProtocol, JoinGroupResponseMember


class State(Enum):
    """The value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


LEADS_TO = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.STABLE, State.PREPARING_REBALANCE},
    State.STABLE: {State.PREPARING_REBALANCE},
}
CAN_REBALANCE = {State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE}


class Timer(NamedTuple):
    """What runs out: "session" and "announced" of a member, "join" and "sync" of a group."""

    kind: str
    group_id: str
    member_id: str = ""


class Member:
    """One consumer (or worker) of a group."""

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[JoinGroupRequestProtocol],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # its first join is not answered yet: it does not know its id and cannot heartbeat
        self.join_reply: ReplyTo = None
        self.sync_reply: ReplyTo = None
        self.session: Timer | None = None  # kept, because every heartbeat and every commit needs it

    @property
    def is_waiting(self) -> bool:
        """Its request is with us: no heartbeat is expected meanwhile."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata_of(self, protocol: str) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    def has_same(self, protocols: list[JoinGroupRequestProtocol]) -> bool:
        return self.protocols == protocols

    def __repr__(self) -> str:
        waits = "joining" if self.join_reply is not None else "syncing" if self.sync_reply is not None else "idle"
        return f"<Member {self.member_id} {waits}>"


class ClassicGroup:
    """The members of a group and what they agreed on."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.came_from = State.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.member_of_instance: dict[str, str] = {}  # static members: group.instance.id -> member id
        self.announced: set[str] = set()  # ids that were given out and not yet used to join (KIP-394)
        self.unsynced: set[str] = set()  # members of this generation that have not asked for their assignment
        self.has_new_member = False  # somebody came during the initial delay: wait a little for the next one
        self.delay_left_ms = 0

    # ---- members

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, f"{member} is in {self} already"
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.announced.discard(member.member_id)
        if member.instance_id is not None:
            self.member_of_instance[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.member_of_instance.pop(member.instance_id, None)
        self.announced.discard(member_id)
        self.unsynced.discard(member_id)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename_static(self, instance_id: str, member_id: str) -> Member:
        """A static member came back under a new id and takes over what its old self had."""
        assert member_id not in self.members, f"{member_id} is in {self} already"
        old_id = self.member_of_instance[instance_id]
        member = self.members.pop(old_id)
        member.member_id, member.session = member_id, None
        self.members[member_id] = member
        self.member_of_instance[instance_id] = member_id
        self.unsynced.discard(old_id)
        if self.leader_id == old_id:
            self.leader_id = member_id
        return member

    @property
    def has_all_joined(self) -> bool:
        return not self.announced and all(member.join_reply is not None for member in self.members.values())

    @property
    def joining_count(self) -> int:
        return sum(member.join_reply is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """The leader must be one who has joined; False when nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """Everybody gets the time that the slowest asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- protocols

    def supports(self, protocol_type: str, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Whether somebody with these protocols can become a member."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and bool(self._common() & {each.name for each in protocols})

    def elect_protocol(self) -> str:
        """Everybody votes for the first in its list that all can do; the most votes win."""
        common = self._common()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(each.name for each in member.protocols if each.name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _common(self) -> set[str]:
        names: Iterator[set[str]] = ({each.name for each in member.protocols} for member in self.members.values())
        return set.intersection(*names) if self.members else set()

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """What the leader is told about everybody."""
        assert self.protocol is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata_of(self.protocol),
            )
            for member in self.members.values()
        ]

    # ---- states

    def move_to(self, state: State, now_ms: int) -> None:
        assert state in LEADS_TO[self.state], f"{self} cannot become {state.value}"
        self.came_from, self.state, self.state_since_ms = self.state, state, now_ms

    def start_generation(self, now_ms: int) -> None:
        """All who will come have come."""
        assert (self.leader_id in self.members) == bool(self.members), f"{self} is led by {self.leader_id}"
        self.generation += 1
        if self.members:
            self.protocol = self.elect_protocol()
            self.move_to(State.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.move_to(State.EMPTY, now_ms)
        self.unsynced.clear()

    def __repr__(self) -> str:
        size = len(self.members)
        return f"<ClassicGroup {self.group_id} {self.state.value} generation {self.generation}, {size} members>"
