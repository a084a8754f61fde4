"""A classic group with many members: what every join asks of the group is counted, not searched for."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ottla.groups.classic_group import ClassicGroup, ClassicGroupMember
from ottla.protocol.messages.groups import JoinGroupRequestProtocol

PROTOCOLS = ("range", "roundrobin", "sticky")


class CountedMembers(dict[str, ClassicGroupMember]):
    """Members that count how often they are all visited."""

    visits = 0

    def values(self):  # type: ignore[no-untyped-def, override]  # the type of dict.values() has no public name
        self.visits += 1
        return super().values()

    def __iter__(self) -> Iterator[str]:
        self.visits += 1
        return super().__iter__()


def named(*names: str) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=b"") for name in names]


def member_named(member_id: str, *protocols: str, instance_id: str | None = None) -> ClassicGroupMember:
    return ClassicGroupMember(member_id, instance_id, "client", "/host", 60_000, 10_000, named(*protocols))


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_those_of_the_members(seed: int) -> None:
    source = random.Random(seed)
    group = ClassicGroup("g", 0)
    group.protocol_type = "consumer"
    for number in range(300):
        protocols = [name for name in PROTOCOLS if source.random() < 0.8] + ["own"]
        chosen = source.choice(list(group.members.values())) if group.members else None
        action = source.randrange(6)
        if chosen is None or action == 0:
            instance_id = f"i{number}" if source.random() < 0.5 else None
            member = member_named(f"m{number}", *protocols, instance_id=instance_id)
            member.join_reply = source.choice([None, number])
            group.add(member)
        elif action == 1:
            group.remove(chosen.member_id)
        elif action == 2:
            group.set_protocols(chosen, named(*protocols, *protocols))
        elif action == 3 and chosen.instance_id is not None:
            group.replace_static_member(chosen.instance_id, f"m{number}")
        else:
            group.set_join_reply(chosen, source.choice([None, number]))
        members = list(group.members.values())
        assert group.awaiting_join == {each.member_id for each in members if each.join_reply is not None}
        assert group.has_all_joined == all(each.join_reply is not None for each in members)
        for name in PROTOCOLS:
            is_common = all(name in {each.name for each in member.protocols} for member in members)
            assert group.supports_protocols("consumer", named(name)) == is_common


def test_a_join_does_not_visit_the_other_members() -> None:
    group = ClassicGroup("g", 0)
    group.protocol_type = "consumer"
    group.members = CountedMembers()
    for number in range(10):
        member = member_named(f"m{number}", "range")
        assert group.supports_protocols("consumer", member.protocols)
        group.add(member)
        group.set_join_reply(member, number)
        assert group.has_all_joined
    assert group.members.visits == 0
