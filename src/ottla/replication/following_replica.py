"""A replica that follows: it takes in what its leader gives, cuts off what the leader does not have, and is mended.

Who leads, and what a leader does, is Partition's business, which builds on this. Compiled with mypyc where possible.

Rule: a replica that has found damage in its log does not begin to lead while others are in sync. It says so (to the
controller that is as if its folder had failed), and is mended from the leader as soon as nobody counts on it. One whose
disk is full says so in the same way: others lead, nobody waits for this one, and it follows as soon as there is room
again. Who is alone keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.tasks import tell
from ottla.replication.following import FetchPosition, followed_watermark, truncation_offset
from ottla.replication.replica import Replica
from ottla.replication.role import NO_LEADER, Role
from ottla.storage.log import Log

UNDAMAGED: Final = -1

Told = Callable[[Any], None]
"""Called with the partition."""


class FollowingReplica(Replica):
    """One copy of a partition as its leader's answers change it."""

    def __init__(self, name: TopicPartition, topic_id: UUID, log: Log, node_id: int) -> None:
        super().__init__(name, topic_id, log, node_id)
        self.in_sync: tuple[int, ...] = ()  # as the controller has confirmed it
        self.is_deleted = False
        self.flush: Told | None = None  # starts a flush; on_flushed() ends it
        self.flush_rolled: Told | None = None  # the same for segments that are full; no hurry
        self.flushed_ms = 0  # when flush.ms last had its way
        self.is_flushing = False  # an append asked for a flush (flush.messages): nothing newer is visible before it
        self.damage_offset = UNDAMAGED  # from here on the log may not be what others take it for
        self.on_damage: Told | None = None  # told when there is damage, and when it is mended
        self.is_full = False  # the disk did not take what came: others shall go on alone until there is room
        self.on_full: Told | None = None  # told when that begins, and when it ends

    # ---- what the leader says

    def fetch_position(self) -> FetchPosition:
        """What to ask the leader for next."""
        return FetchPosition(self.log.end_offset, self.log.latest_epoch, self.leader_epoch)

    def takes(self, position: FetchPosition) -> bool:
        """Whether the answer to this fetch still tells something; not after a new role, or a second time."""
        if self.leader_id == self.node_id or self.is_deleted:
            return False
        return position.leader_epoch == self.leader_epoch and position.offset == self.log.end_offset

    def append_fetched(
        self, position: FetchPosition, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Take in what the leader gave; false if nobody wants it any more. KafkaError if it cannot be taken."""
        if not self.takes(position):
            return False
        log = self.log
        if len(records):
            try:
                self._append_records(log, records)
            except KafkaError:
                self._note_refusal()
                raise
            self._hidden_bytes += len(records)
            self._flush_if_due()
        self._set_high_watermark(followed_watermark(self.high_watermark, high_watermark, log.end_offset))
        log.forget_ended(self.high_watermark)
        if log.log_start_offset < log_start_offset:
            log.raise_log_start_offset(min(log_start_offset, self.high_watermark))
        return True

    def _append_records(self, log: Log, records: memoryview) -> None:
        start_offset = log.log_start_offset
        base_offset = first_offset(records)
        if base_offset < log.end_offset == start_offset:
            # The leader's log starts in the middle of a batch (DeleteRecords): the batch comes as a whole.
            log.truncate_fully_and_start_at(base_offset)
            log.append_as_follower(records)
            log.raise_log_start_offset(min(start_offset, log.end_offset))
            return
        if base_offset < log.end_offset:
            self._drop_misfit(log, base_offset)
        log.append_as_follower(records)

    def _drop_misfit(self, log: Log, base_offset: int) -> None:
        """Our log ends within a batch of the leader: so what we have there is not what it wrote.

        While we count as in sync we must say so first, and are refused until nobody counts on us.
        """
        self.note_damage(base_offset)
        if self.damage_offset != UNDAMAGED:
            raise KafkaError(Error.CORRUPT_MESSAGE, f"{self.name} ends within the leader's batch at {base_offset}")
        log.truncate_to(base_offset)
        self.high_watermark = min(self.high_watermark, log.end_offset)

    def truncate_on_divergence(self, position: FetchPosition, epoch: int, end_offset: int) -> bool:
        """The leader says where its log and ours may part; false if nothing was cut off."""
        if not self.takes(position):
            return False
        log = self.log
        own_epoch, own_epoch_end = log.end_offset_for_epoch(epoch)
        offset = truncation_offset(epoch, end_offset, own_epoch, own_epoch_end, log.end_offset)
        if offset >= log.end_offset:
            return False
        log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, log.end_offset)
        return True

    def restart_at(self, position: FetchPosition, offset: int) -> bool:
        """The leader's log starts later than ours ends: begin anew there."""
        if not self.takes(position) or offset <= self.log.end_offset:
            return False
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        return True

    # ---- damage

    def note_damage(self, offset: int) -> None:
        """The stored batch with this offset is not sound. Others have it: they shall lead, and give it back to us."""
        if self.damage_offset == UNDAMAGED and self.node_id in self.in_sync and len(self.in_sync) > 1:
            self.damage_offset = self.log.batch_start(offset)
            if self.on_damage is not None:
                tell(self.on_damage, self)

    def _role_with_damage(self, role: Role) -> Role:
        """What we do of what the controller wants."""
        trusted = frozenset((*role.isr, *role.eligible))
        if self.node_id in trusted and len(trusted) > 1:
            begins = role.leader == self.node_id != self.leader_id
            return role._replace(leader=NO_LEADER) if begins else role
        if self.node_id not in role.isr and self.damage_offset < self.log.end_offset:
            if role.leader == NO_LEADER:
                return role  # what is left here may be all that there is
            try:
                self.log.truncate_to(self.damage_offset)
            except KafkaError:
                return role  # the disk is worse off than that: the log has said so
            self.high_watermark = min(self.high_watermark, self.log.end_offset)
        self.damage_offset = UNDAMAGED  # nobody counts on us; or nobody else has it, and we lead with what is left
        self.log.accept_loss()
        if self.on_damage is not None:
            tell(self.on_damage, self)
        return role

    # ---- the disk

    def _note_refusal(self) -> None:
        """An append has failed. Others have room, perhaps: they shall go on without us."""
        if self.log.is_disk_full and not self.is_full and self.node_id in self.in_sync and len(self.in_sync) > 1:
            self.is_full = True
            if self.on_full is not None:
                tell(self.on_full, self)

    def note_room(self) -> None:
        """The disk takes something again."""
        if self.is_full:
            self.is_full = False
            if self.on_full is not None:
                tell(self.on_full, self)

    def _flush_if_due(self) -> None:
        if self.log.unflushed_messages >= self.log.settings.flush_messages and not self.is_flushing:
            self._start_flush()
        if self.log.has_rolled and self.flush_rolled is not None:
            self.flush_rolled(self)

    def _start_flush(self) -> None:
        if self.flush is not None:
            self.is_flushing = True
            self.flush(self)


def first_offset(records: memoryview) -> int:
    """Of the first batch of what a leader gave."""
    return int.from_bytes(records[:8], "big", signed=True)
