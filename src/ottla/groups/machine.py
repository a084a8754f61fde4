"""The group coordinator's machine: all groups and offsets of one partition of `__consumer_offsets`.

It follows the contract of coordination/machine.py. Requests come as the messages of the wire; the handlers have checked
who may ask, and know topic names where newer clients send topic ids.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain
from typing import Any

from ottla.base.errors import Error
from ottla.coordination.batch import RECORDS_MAX
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo, Stamp
from ottla.groups.catalog import Catalog
from ottla.groups.classic import Assigned
from ottla.groups.classic_answers import Client, left_response
from ottla.groups.classic_group import ClassicGroup, State
from ottla.groups.consumer_group import JOINING, ConsumerGroup, ConsumerMember
from ottla.groups.consumer_plan import FindTopics
from ottla.groups.consumer_records import forget_group
from ottla.groups.expiry import Expiry
from ottla.groups.forgetting import Forgetting
from ottla.groups.mixed import DOWNGRADES, Downgraded, MixedGroups, downgrade, upgrade, upgrade_problem
from ottla.groups.offset_machine import OffsetMachine
from ottla.groups.offset_records import EVERY_PARTITION, OffsetOfRecord, offset_of, read_usual_commit
from ottla.groups.records import GROUP_METADATA, OFFSET_COMMIT, group_tombstone, read_record, restore_group
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.consumer_protocol import CONSUMER
from ottla.protocol.messages.group_admin import DescribedGroup, DescribedGroupMember, ListedGroup
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

LEGACY_OFFSET_COMMIT = 0
CLASSIC = "classic"


class GroupMachine(OffsetMachine):
    """Groups of one partition: members of both protocols, their offsets, and the log that keeps all of it."""

    def __init__(self, settings: GroupSettings, find_topics: FindTopics, catalog: Callable[[], Catalog]) -> None:
        super().__init__(settings, find_topics)
        self._catalog = catalog  # the topics as they are now
        self._mixed = MixedGroups(self.consumer)
        self.consumer.downgrade = self._downgrade
        self._sweep_due_ms: int | None = None

    def change_settings(self, settings: GroupSettings) -> None:
        self.classic.settings = settings
        self.consumer.settings = settings

    # ---- membership

    def join(
        self, request: JoinGroupRequest, client: Client, fresh_id: str, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        former = self.consumer.groups.get(request.group_id)
        if former is not None and former.members:
            return self._mixed.join(former, request, client, fresh_id, self._catalog(), reply_to, now_ms)
        decision = self.classic.join(request, client, fresh_id, reply_to, now_ms)
        if former is not None and request.group_id in self.groups:  # also if it could not be written the last time
            decision.records[:0] = forget_group(former)
        return decision

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        catalog: Catalog,
        reply_to: ReplyTo,
        now_ms: int,
    ) -> Decision:
        """A group becomes one of the new protocol when the first new member comes."""
        former = self.groups.get(request.group_id)
        if former is None:
            return self.consumer.heartbeat(request, client.client_id, client.host, catalog, reply_to, now_ms)
        if request.member_epoch != JOINING:
            return _no_group(f"Group {request.group_id} is not a consumer group.", reply_to)
        upgraded, records = None, [group_tombstone(request.group_id)]
        if former.members:
            settings = self.settings
            problem = upgrade_problem(former, settings.consumer_size_max, settings.migration_policy)
            if problem is not None:
                sentence = f"Cannot upgrade classic group {request.group_id} to consumer group because {problem}."
                return _no_group(sentence, reply_to)
            upgraded, records = upgrade(former, catalog)
        decision = self.consumer.heartbeat(request, client.client_id, client.host, catalog, reply_to, now_ms, upgraded)
        if decision.records:
            decision.records[:0] = records
            decision.replies += self.classic.dismissed(former)
            for member in upgraded.members.values() if upgraded is not None else ():
                self.consumer.expect(request.group_id, member, now_ms)
        return decision

    def _downgrade(self, group: ConsumerGroup, stay: list[ConsumerMember], now_ms: int) -> Decision | None:
        if self.settings.migration_policy not in DOWNGRADES:
            return None
        return Decision(downgrade(group, stay, self._catalog(), now_ms), event=Downgraded(group.group_id))

    def sync(self, request: SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.consumer.groups.get(request.group_id)
        if group is not None:
            return self._mixed.sync(group, request, self._catalog(), reply_to, now_ms)
        return self.classic.sync(request, reply_to, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        group = self.consumer.groups.get(request.group_id)
        if group is not None:
            return self._mixed.heartbeat(group, request, now_ms)
        return self.classic.heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        consumer_group = self.consumer.groups.get(request.group_id)
        if consumer_group is None:
            return self.classic.leave(request, reply_to, now_ms)
        errors, decision = self.consumer.remove(consumer_group, request.members, now_ms)
        decision.replies.append(Reply(reply_to, left_response(request.members, errors)))
        return decision

    # ---- administration

    def delete_group(self, group_id: str) -> tuple[list[Record], Error, bool]:
        """What is to be written, and whether that is all: of many offsets only some are forgotten at a time."""
        group = self.groups.get(group_id)
        consumer_group = self.consumer.groups.get(group_id)
        if group is None and consumer_group is None:
            return [], Error.GROUP_ID_NOT_FOUND, True
        if (group is not None and group.state is not State.EMPTY) or (consumer_group and consumer_group.members):
            return [], Error.NON_EMPTY_GROUP, True
        records, is_all = self.some_forgotten(group_id, RECORDS_MAX)
        if not is_all:
            return records, Error.NONE, False
        if consumer_group is not None:
            return [*records, *forget_group(consumer_group)], Error.NONE, True
        return [*records, group_tombstone(group_id)], Error.NONE, True

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self.groups.get(group_id)
        if group is None:
            return None
        is_stable = group.state is State.STABLE
        members = [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_of(group.protocol or "") if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=members,
        )

    def list_groups(self) -> Iterable[ListedGroup]:
        for group in self.groups.values():
            yield ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
        for consumer_group in self.consumer.groups.values():
            yield ListedGroup(
                group_id=consumer_group.group_id,
                protocol_type=CONSUMER,
                group_state=consumer_group.state,
                group_type=CONSUMER,
            )

    # ---- the log

    def apply(self, key: bytes, value: bytes | None, stamp: Stamp | None) -> None:
        usual = read_usual_commit(key, value) if value is not None else None
        if usual is not None:
            self._apply_commit(usual, stamp)
            return
        found = read_record(key, value)
        if found is None:
            return
        kind, key_message, value_message = found
        if kind in (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT):
            if value_message is None:
                self._apply_tombstone(key_message.group, key_message.topic, key_message.partition)
            else:
                self._apply_commit(offset_of(key_message, value_message), stamp)
        elif kind == GROUP_METADATA:
            self._apply_group(key_message.group, value_message)
        else:
            self.consumer.apply(kind, key_message, value_message)
            if value_message is not None:
                self.groups.pop(key_message.group_id, None)  # until now it was only a name with offsets

    def _apply_commit(self, found: OffsetOfRecord, stamp: Stamp | None) -> None:
        if stamp is not None:
            self.offsets.commit_pending(stamp.producer_id, found)
        else:
            self.offsets.commit(found)
        group = found.group
        if group not in self.groups and group not in self.consumer.groups:
            self.groups[group] = ClassicGroup(group, found.commit_ms)

    def _apply_tombstone(self, group: str, topic: str, partition: int) -> None:
        if partition == EVERY_PARTITION:
            self.offsets.make_void(topic)
        else:
            self.offsets.forget(group, topic, partition)

    def _apply_group(self, group_id: str, value: Any | None) -> None:
        """While it lives here, a group knows itself better than its record does."""
        if value is None:
            self.groups.pop(group_id, None)
        elif self._is_loading or group_id not in self.groups:
            self.groups[group_id] = restore_group(group_id, value)

    def apply_marker(self, stamp: Stamp, is_commit: bool) -> None:
        self.offsets.end_transaction(stamp.producer_id, is_commit)

    _is_loading = True

    def loaded(self, now_ms: int) -> list[Decision]:
        """Members that the log knows get a whole session to report; a group too large for the settings shrinks."""
        self._is_loading = False
        self._sweep_due_ms = now_ms + self.settings.offsets_check_interval_ms
        self.renew_sessions(now_ms)
        return []

    def renew_sessions(self, now_ms: int) -> None:
        for group in self.groups.values():
            self.classic.start_sessions(group, now_ms)
        self.consumer.start_sessions(now_ms)

    def settle(self, event: Any, error: Error, now_ms: int) -> list[Decision]:
        if isinstance(event, Downgraded) and error is Error.NONE:
            return [self.classic.resume(event.group_id, now_ms)]
        return [self.classic.on_assigned(event, error, now_ms)] if isinstance(event, Assigned) else []

    def resign(self) -> list[Reply]:
        return self.classic.resigned()

    # ---- time

    def next_wakeup_ms(self) -> int | None:
        """Asked after every request: a session that was prolonged meanwhile is put right when it seems to end."""
        soonest_ms = self._sweep_due_ms
        for at_ms in (self.classic.deadlines.soonest_ms(), self.consumer.deadlines.soonest_ms()):
            if at_ms is not None and (soonest_ms is None or at_ms < soonest_ms):
                soonest_ms = at_ms
        return soonest_ms

    def tick(self, now_ms: int) -> list[Decision]:
        return self.classic.tick(now_ms) + self.consumer.tick(now_ms)

    def sweep(self, now_ms: int, bytes_max: int) -> Iterator[Decision] | None:
        """Offsets that have expired, and what is left of topics that are void because it could not be written."""
        if self._sweep_due_ms is None or self._sweep_due_ms > now_ms:
            return None
        self._sweep_due_ms = now_ms + self.settings.offsets_check_interval_ms
        left_over = self.deleted_topics((), bytes_max) if self.offsets.void else iter(())
        return chain(left_over, Expiry(self, now_ms, bytes_max).decisions())

    def deleted_topics(self, names: Container[str], bytes_max: int) -> Iterator[Decision]:
        """Offsets of a topic go with it: a new topic of the same name begins at its own beginning. As with a sweep."""
        return Forgetting(self.offsets, names, bytes_max).decisions()

    def __repr__(self) -> str:
        return f"<GroupMachine {len(self.groups) + len(self.consumer.groups)} groups, {self.offsets!r}>"


def _no_group(problem: str, reply_to: ReplyTo) -> Decision:
    response = ConsumerGroupHeartbeatResponse(error_code=Error.GROUP_ID_NOT_FOUND, error_message=problem)
    return Decision(replies=[Reply(reply_to, response)])
