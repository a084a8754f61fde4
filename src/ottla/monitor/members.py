"""Who reads which partition, as the records of groups tell it. Pure, bounded.

A classic group writes all its members in one record. Members of the new protocol (KIP-848) write one record about
themselves and one about what they read, which names topics by their ids: names are filled in when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition

MEMBERS_MAX: Final = 100_000  # of all groups together; more are not shown

TopicName = Callable[[UUID], str | None]


class Member(NamedTuple):
    """A member of a classic group and what it was given."""

    client_id: str
    host: str
    partitions: Sequence[TopicPartition]


class NewMember(NamedTuple):
    """News of a member of the new protocol: who it is, what it reads, or that it has left."""

    group: str
    member_id: str
    client: tuple[str, str] | None = None  # client id and host
    assigned: Sequence[tuple[UUID, int]] | None = None
    is_gone: bool = False


class Owner(NamedTuple):
    """Who reads a partition."""

    client_id: str
    host: str


NOBODY: Final = Owner("", "")


class _NewMember:
    __slots__ = ("assigned", "client")

    def __init__(self) -> None:
        self.client = NOBODY
        self.assigned: Sequence[tuple[UUID, int]] = ()


class Members:
    """The members of all groups of a cluster."""

    def __init__(self) -> None:
        self._classic: dict[str, Sequence[Member]] = {}
        self._new: dict[str, dict[str, _NewMember]] = {}
        self.count = 0

    def set_classic(self, group: str, members: Sequence[Member]) -> None:
        self.count -= len(self._classic.pop(group, ()))
        if members and self.count + len(members) <= MEMBERS_MAX:
            self._classic[group] = members
            self.count += len(members)

    def apply(self, news: NewMember) -> None:
        members = self._new.setdefault(news.group, {})
        if news.is_gone:
            self.count -= members.pop(news.member_id, None) is not None
        elif news.member_id in members or self.count < MEMBERS_MAX:
            self.count += news.member_id not in members
            member = members.setdefault(news.member_id, _NewMember())
            if news.client is not None:
                member.client = Owner(*news.client)
            if news.assigned is not None:
                member.assigned = news.assigned
        if not members:
            del self._new[news.group]

    def owners(self, group: str, topic_name: TopicName) -> dict[TopicPartition, Owner]:
        found = {
            partition: Owner(member.client_id, member.host)
            for member in self._classic.get(group, ())
            for partition in member.partitions
        }
        for new in self._new.get(group, {}).values():
            for topic_id, number in new.assigned:
                name = topic_name(topic_id)
                if name is not None:
                    found[TopicPartition(name, number)] = new.client
        return found

    def __repr__(self) -> str:
        return f"<Members {self.count} in {len(self._classic)} classic and {len(self._new)} new groups>"
