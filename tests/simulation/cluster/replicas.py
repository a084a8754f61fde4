"""Replicas on a broker: the real `Partition` on logs in memory, and what drives it, in few lines, by the same rules.

Played here: the publisher of images, the fetch handler for followers, replica fetchers, proposals for the ISR, flushes
and checkpoints. What is decided about records, epochs and watermarks is decided by the modules of ottla.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tests.simulation.cluster.disk import Disk, MemoryLog
from tests.simulation.cluster.membership import Member
from tests.simulation.cluster.network import Answer, Failure

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.names import TopicPartition
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.follower_rules import FetchPosition
from ottla.replication.leader_state import AlterPartitionProposal, PartitionState
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import Cluster

FETCH_PATIENCE_MS = 250
IDLE_MS = 25
ISR_CHECK_MS = 60
PROPOSAL_PATIENCE_MS = 300
CHECKPOINT_MS = 300
LAG_MS_MAX = 400


class FetchPart(NamedTuple):
    """What a follower asks for in one partition."""

    name: TopicPartition
    topic_id: UUID
    position: FetchPosition


class FetchedPart(NamedTuple):
    """What it gets."""

    part: FetchPart
    error: Error
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: Any = None


class Replicas(Member):
    """All partitions on one broker, in one life of its process."""

    def __init__(self, cluster: Cluster, host: int, disk: Disk) -> None:
        super().__init__(cluster, host, disk)
        self.ledger = cluster.ledger
        self.settings = cluster.settings
        self.partitions: dict[TopicPartition, Partition] = {}
        self.clock_offset_ms = cluster.clock_offsets_ms.get(host, 0)
        self._checked: dict[TopicPartition, int] = {}  # up to where the ledger has seen what is committed
        self._fetching: set[int] = set()  # leaders that are being asked
        self._proposals: dict[TopicPartition, AlterPartitionProposal] = {}  # to be sent, or on their way
        self._is_proposing = False
        disk.reopen()
        self.after(ISR_CHECK_MS, self._check_isr)
        self.after(CHECKPOINT_MS, self._checkpoint)

    def wall_ms(self) -> int:
        return self.world.now_ms + self.clock_offset_ms

    # ---- images

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        for name in sorted(new.changed_topics_since(old)):
            before, after = old.topics.get(name), new.topics.get(name)
            if before is not None and (after is None or after.topic_id != before.topic_id):
                self._retire_topic(name)
            if after is not None:
                self._follow_topic(after)
        for name in [name for name in self.disk.logs if not self._belongs_here(new, name)]:
            self._retire(name)
        self._start_fetchers()

    def _belongs_here(self, image: MetadataImage, name: TopicPartition) -> bool:
        state = image.partition(*name)
        return state is not None and self.host in state.replicas

    def _retire_topic(self, topic: str) -> None:
        for name in [name for name in self.disk.logs if name.topic == topic]:
            self._retire(name)

    def _retire(self, name: TopicPartition) -> None:
        partition = self.partitions.pop(name, None)
        if partition is not None:
            partition.close()
        self.disk.logs.pop(name, None)
        self.disk.high_watermarks.pop(name, None)
        self._checked.pop(name, None)
        self._proposals.pop(name, None)

    def _follow_topic(self, topic: TopicImage) -> None:
        for index, state in enumerate(topic.partitions):
            if self.host in state.replicas:
                partition = self._open(TopicPartition(topic.name, index), topic.topic_id)
                led = (partition.leader_epoch, partition.is_leader)
                partition.apply_state(partition_state_of(state), self.world.now_ms)
                if partition.is_leader and led != (partition.leader_epoch, True):
                    self.world.tell(f"{self.host} leads {partition.name} epoch {partition.leader_epoch} {state.isr}")
                    if self.cluster.is_newest(partition):  # else it hears of an office that is over already
                        self.ledger.on_leader(self.host, partition)
                self.note(partition)

    def _open(self, name: TopicPartition, topic_id: UUID) -> Partition:
        partition = self.partitions.get(name)
        if partition is not None:
            return partition
        log = self.disk.logs.get(name)
        if log is not None and log.topic_id != topic_id:
            self._retire(name)
            log = None
        if log is None:
            log = self.disk.logs[name] = MemoryLog(name, topic_id, self.settings)
        partition = Partition(name, topic_id, log, self.host)
        partition.lag_ms_max = LAG_MS_MAX
        partition.flush = self._flush
        partition.on_isr_proposal_due = self._on_isr
        known = self.disk.high_watermarks.get(name, 0)
        partition.high_watermark = min(max(known, log.log_start_offset), log.end_offset)
        self.partitions[name] = partition
        self._checked[name] = 0
        self.note(partition)
        return partition

    def note(self, partition: Partition) -> None:
        """Something was done to a partition: let the ledger see what is committed now."""
        name = partition.name
        checked = self._checked.get(name)
        if checked is not None and partition.high_watermark != checked:
            if partition.high_watermark > checked:
                self.ledger.on_high_watermark(self.host, partition, checked)
                if partition.is_leader and self.ledger.is_clean:
                    self.cluster.check_commit(partition)
            elif self.ledger.is_clean:
                self.ledger.break_(f"C: the high watermark of {partition!r} on {self.host} was {checked}")
            self._checked[name] = partition.high_watermark

    # ---- the leader's side of replication

    def on_fetch(self, replica: int, broker_epoch: int, parts: list[FetchPart], answer: Answer) -> None:
        answer([self._fetch_part(replica, broker_epoch, part) for part in parts])

    def _fetch_part(self, replica: int, broker_epoch: int, part: FetchPart) -> FetchedPart:
        partition = self.partitions.get(part.name)
        if partition is None or partition.topic_id != part.topic_id:
            return FetchedPart(part, Error.UNKNOWN_TOPIC_ID)
        try:
            read = partition.read_for_replica(
                replica,
                broker_epoch,
                *part.position,
                self.cluster.fetch_bytes,
                True,
                self.world.now_ms,
            )
        except KafkaError as refusal:
            return FetchedPart(part, refusal.error, log_start_offset=partition.log.log_start_offset)
        finally:
            self.note(partition)
        records = bytes_of(partition, read.file_range)
        return FetchedPart(part, Error.NONE, records, read.high_watermark, read.log_start_offset, read.diverging)

    # ---- the follower's side

    def _start_fetchers(self) -> None:
        for leader in sorted({partition.leader_id for partition in self.partitions.values()}):
            if leader not in (-1, self.host) and leader not in self._fetching:
                self._fetching.add(leader)
                self._fetch_from(leader)

    def _fetch_from(self, leader: int) -> None:
        followed = [each for each in self.partitions.values() if each.leader_id == leader]
        if not followed:
            self._fetching.discard(leader)
            return
        parts = [
            FetchPart(partition.name, partition.topic_id, partition.fetch_position())
            for partition in followed
            if not partition.is_flushing  # to ask for more is to say that one has what came before
        ]
        if not parts:
            self.after(IDLE_MS // 2, lambda: self._fetch_from(leader))
            return
        epoch = self.broker_epoch
        self.network.call(
            self,
            leader,
            lambda process, answer: process.on_fetch(self.host, epoch, parts, answer),
            lambda fetched: self._fetched(leader, fetched),
            lambda why: self.after(IDLE_MS, lambda: self._fetch_from(leader)),
            FETCH_PATIENCE_MS,
        )

    def _fetched(self, leader: int, fetched: list[FetchedPart]) -> None:
        is_idle = True
        for each in fetched:
            partition = self.partitions.get(each.part.name)
            if partition is not None and partition.topic_id == each.part.topic_id:
                try:
                    self._take(partition, each)
                except KafkaError as refusal:
                    self.world.tell(f"{self.host} cannot take what {leader} gave for {partition.name}: {refusal}")
                else:
                    is_idle = is_idle and not each.records
                self.note(partition)
        self.after(1 + int(self.world.random.random() * IDLE_MS) if is_idle else 0, lambda: self._fetch_from(leader))

    def _take(self, partition: Partition, fetched: FetchedPart) -> None:
        if fetched.error is Error.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, fetched)
        elif fetched.error is not Error.NONE:
            return
        elif fetched.diverging is not None:
            end = partition.log.end_offset
            partition.truncate_on_divergence(fetched.part.position, *fetched.diverging)
            self.world.tell(f"{self.host} cuts {partition.name} from {end} to {partition.log.end_offset}")
        else:
            partition.append_fetched(
                fetched.part.position, memoryview(fetched.records), fetched.high_watermark, fetched.log_start_offset
            )

    def _out_of_range(self, partition: Partition, fetched: FetchedPart) -> None:
        if partition.log.end_offset < fetched.log_start_offset:
            partition.restart_at(fetched.part.position, fetched.log_start_offset)

    # ---- the ISR

    def _check_isr(self) -> None:
        for partition in self.partitions.values():
            self._ask_for_isr(partition)
        self._propose()
        self.after(ISR_CHECK_MS, self._check_isr)

    def _on_isr(self, partition: Partition) -> None:
        """A replica has caught up: it joins at once."""
        self.after(1, lambda: self._ask_for_isr(partition))
        self.after(1, self._propose)

    def _ask_for_isr(self, partition: Partition) -> None:
        if self.partitions.get(partition.name) is partition:
            proposal = partition.propose_isr_change(self.world.now_ms, self.broker_epoch)
            if proposal is not None:
                self._proposals[partition.name] = proposal

    def _propose(self) -> None:
        if self._is_proposing or not self._proposals or self.controller_id < 0:
            return
        self._is_proposing = True
        sent = list(self._proposals.items())
        self.world.tell(f"{self.host} proposes {[(str(name), proposal.isr) for name, proposal in sent]}")
        epoch = self.broker_epoch
        self.ask_controller(
            lambda process, answer: process.on_alter_partitions(
                self.host, epoch, [proposal for _, proposal in sent], answer
            ),
            lambda answers: self._proposed(sent, answers),
            self._not_proposed,
            PROPOSAL_PATIENCE_MS,
        )

    def _not_proposed(self, _: Failure) -> None:
        """The outcome is unknown: the same request is sent again until there is an answer."""
        self._is_proposing = False

    def _proposed(self, sent: list[tuple[TopicPartition, AlterPartitionProposal]], answers: Any) -> None:
        self._is_proposing = False
        if isinstance(answers, Error):
            self.world.tell(f"{self.host} is refused: {answers.name}")
            return
        for (name, proposal), (error, state) in zip(sent, answers, strict=True):
            if self._proposals.get(name) is proposal:
                del self._proposals[name]
            if error is not Error.NONE:
                self.world.tell(f"{self.host} is refused {proposal.isr} of {name}: {error.name}")
            partition = self.partitions.get(name)
            if partition is None or partition.topic_id != proposal.topic_id:
                continue
            if state is None:
                partition.on_alter_partition_response(proposal, error, -1, (), -1, 0)
            else:
                partition.on_alter_partition_response(
                    proposal, error, state.leader_epoch, state.isr, state.partition_epoch, state.leader_recovery_state
                )
            self.note(partition)
        self._propose()

    # ---- disks

    def _flush(self, partition: Partition) -> None:
        """What the flusher does: a worker syncs, the loop takes the result."""
        job = partition.log.begin_flush()
        assert job is not None

        def synced() -> None:
            job.is_done = True
            partition.log.end_flush(job)
            partition.on_flushed()
            self.note(partition)

        slowest_ms = 120 if self.world.chance(0.1) else 15  # W4: now and then a disk takes its time
        self.after(1 + int(self.world.random.random() * slowest_ms), synced)

    def _checkpoint(self) -> None:
        random = self.world.random.random
        if random() < 0.5:
            for partition in self.partitions.values():
                partition.log.flush()
        self.disk.high_watermarks = {name: each.high_watermark for name, each in self.partitions.items()}
        self.after(CHECKPOINT_MS, self._checkpoint)


def partition_state_of(state: PartitionImage) -> PartitionState:
    return PartitionState(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.replicas,
        state.partition_epoch,
        state.adding_replicas,
        state.removing_replicas,
        state.elr,
        bool(state.leader_recovery_state),
    )


def bytes_of(partition: Partition, found: FileRange | None) -> bytes:
    if found is None:
        return b""
    log = partition.log
    assert isinstance(log, MemoryLog)
    found.release()
    return bytes(log.bytes.data[found.position : found.position + found.length])
