"""Times in records may be in the future: another broker's clock was ahead, or the system clock was set back."""

from __future__ import annotations

from uuid import UUID

from ottla.groups.classic_group import RequestClient
from ottla.groups.consumer_group import ConsumerGroup, ConsumerGroupMember, TopicInfo
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import GroupSettings
from ottla.groups.topic_regexes import resolution_due
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
TOPIC = TopicInfo("t", UUID(int=5), 2)


class OneTopic:
    generation = new_topics_generation = 1

    def topic(self, name: str) -> TopicInfo | None:
        return TOPIC if name == TOPIC.name else None

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return TOPIC if topic_id == TOPIC.topic_id else None


def join(machine: GroupCoordinator, member_id: str, now_ms: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    decision = machine.consumer_heartbeat(request, RequestClient("c", "/h"), OneTopic(), None, now_ms)
    for key, value in decision.records:
        machine.replay(key, value, None)


def test_next_assignment_does_not_wait_for_the_time_of_the_last_one() -> None:
    machine = GroupCoordinator(GroupSettings(), lambda _: None, OneTopic)
    join(machine, "a", NOW_MS)
    assert machine.consumer.groups["g"].assignment_timestamp_ms == NOW_MS
    join(machine, "b", NOW_MS - HOUR_MS)
    assert set(machine.consumer.groups["g"].target_assignment) == {"a", "b"}


def test_next_resolution_of_expressions_does_not_wait_for_the_time_of_the_last_one() -> None:
    group, member = ConsumerGroup("g"), ConsumerGroupMember("a")
    member.subscribed_topic_regex = "t.*"
    group.regex_subscriber_counts["t.*"] = 1
    group.resolved_regexes["t.*"] = frozenset()
    group.regexes_resolved_ms = group.regexes_resolved_generation = NOW_MS
    assert resolution_due(group, member, member, OneTopic(), HOUR_MS, NOW_MS + HOUR_MS) is None
    assert resolution_due(group, member, member, OneTopic(), HOUR_MS, NOW_MS + HOUR_MS + 1) is not None
    assert resolution_due(group, member, member, OneTopic(), HOUR_MS, NOW_MS - 1) is not None
