"""A broker with real coordinators: the very machines and shards that ottla runs, around simulated logs.

What drives them in a real broker (handlers, marker writer, produce path) is played here in few lines, by its rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tests.dialogues.dialogue import check_metadata_count, with_error
from tests.simulation.world import SimulatedPartition, World

from ottla.base.errors import Error, KafkaError
from ottla.broker.coordinator_service.transaction_markers import append_marker
from ottla.coordination.machine import Decision, Reply, TransactionalProducer
from ottla.coordination.shard import CoordinatorContext
from ottla.groups.consumer_group import TopicInfo
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import GroupSettings
from ottla.storage.producer_state import ProducerStates
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import TransactionCoordinator, TransactionMarkers, TransactionSettings

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
GROUP_PLACE = (OFFSETS, 0)
TICK_MS = 50


class Catalog:
    """One topic that may get more partitions."""

    def __init__(self, partition_count: int) -> None:
        self.generation = self.new_topics_generation = 1
        self.facts = TopicInfo("in", UUID(int=1), partition_count)

    def topic(self, name: str) -> TopicInfo | None:
        return self.facts if name == self.facts.name else None

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return self.facts if topic_id == self.facts.topic_id else None


class DataPartition:
    """Records of transactions and their markers, checked by the real producer state."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, Any]] = []  # (producer id, value), or (producer id, True/False) for markers
        self.producers = ProducerStates(10**12)
        self.sequences: dict[tuple[int, int], int] = {}

    def append(self, who: ProducerIdAndEpoch, sequence: int, value: object) -> None:
        """Raises KafkaError for an old epoch or a gap; a duplicate is taken for written."""
        if self.producers.find_duplicate(who.producer_id, who.epoch, sequence, sequence) is not None:
            return
        offset = len(self.entries)
        self.producers.check(who.producer_id, who.epoch, sequence, True, offset)
        self.producers.append(who.producer_id, who.epoch, sequence, sequence, offset, offset, 0, True)
        self.entries.append((who.producer_id, value))

    def mark(self, order: TransactionMarkers) -> None:
        self.entries.append((order.producer_id, order.is_commit))
        self.producers.end_transaction(order.producer_id, order.producer_epoch, 0, 0)

    def has_open_transaction(self, who: ProducerIdAndEpoch) -> bool:
        producer = self.producers.by_id.get(who.producer_id)
        return producer is not None and producer.epoch == who.epoch and who.producer_id in self.producers.ongoing_txns

    def committed(self) -> list[Any]:
        """What a read_committed consumer sees, in order."""
        first_open = self.producers.first_unstable_offset()
        seen: list[Any] = []
        end = len(self.entries) if first_open < 0 else first_open
        for place, (producer_id, value) in enumerate(self.entries[:end]):
            if not isinstance(value, bool) and self._end_of(producer_id, place):
                seen.append(value)
        return seen

    def _end_of(self, producer_id: int, place: int) -> bool:
        for owner, value in self.entries[place:]:
            if owner == producer_id and isinstance(value, bool):
                return value
        return False


class SimulatedBroker:
    """Coordinators, two output partitions, and a crash button."""

    def __init__(self, world: World, settings: GroupSettings, timeouts: TransactionSettings) -> None:
        self.world = world
        self._group_settings = settings
        self._timeouts = timeouts
        self.offsets_log = SimulatedPartition(world, OFFSETS)
        self.transactions_log = SimulatedPartition(world, TRANSACTIONS)
        self.outputs = {("out", 0): DataPartition(), ("out", 1): DataPartition()}
        self.catalog = Catalog(4)
        self._fresh_id = 100
        self._life = 0
        self._start()
        world.after(TICK_MS, self._tick)

    def _start(self) -> None:
        """As after a real start: machines are built from what the logs hold."""
        world = self.world
        self.groups = GroupCoordinator(self._group_settings, lambda _: None, lambda: self.catalog)
        self.transactions = TransactionCoordinator(self._timeouts)
        for machine, log in ((self.groups, self.offsets_log), (self.transactions, self.transactions_log)):
            for header, record in log.records():
                stamp = (
                    TransactionalProducer(header.producer_id, header.producer_epoch)
                    if header.is_transactional
                    else None
                )
                if header.is_control and stamp is not None:
                    machine.replay_end_transaction_marker(stamp, record.key[3] == 1)
                elif record.key is not None:
                    machine.replay(record.key, record.value, stamp)
        self.group_shard = CoordinatorContext(
            self.offsets_log, self.groups, with_error, lambda: world.now_ms, lambda _: None
        )  # type: ignore[arg-type]
        self.transaction_shard = CoordinatorContext(
            self.transactions_log,  # type: ignore[arg-type]
            self.transactions,
            with_error,
            lambda: world.now_ms,
            self._take_orders,
        )
        for shard in (self.group_shard, self.transaction_shard):
            for decision in shard.machine.on_loaded(world.now_ms):
                shard.execute(decision)
        self._take_orders(self.transaction_shard)

    def crash(self) -> None:
        self.world.tell("the broker dies and comes back")
        self._life += 1
        self.offsets_log.crash()
        self.transactions_log.crash()
        self._start()

    def refuse_writes(self, for_ms: int) -> None:
        self.world.tell(f"for {for_ms} ms too few replicas are in sync")
        self.offsets_log.refuse(for_ms)
        self.transactions_log.refuse(for_ms)

    def _tick(self) -> None:
        check_metadata_count(self.groups)
        for shard in (self.group_shard, self.transaction_shard):
            for decision in shard.sweep() or ():
                shard.execute(decision)
            shard.tick()
        self.world.after(TICK_MS, self._tick)

    def new_id(self) -> int:
        self._fresh_id += 1
        return self._fresh_id

    # ---- requests: each answers through `answer`, at once or later, or never if the broker dies first

    def ask_groups(
        self, decide: Callable[[GroupCoordinator, Any, int], Decision], answer: Callable[[Any], None]
    ) -> None:
        self.group_shard.execute(decide(self.groups, self._of_this_life(answer), self.world.now_ms))

    def ask_transactions(
        self, decide: Callable[[TransactionCoordinator, Any, int], Decision], answer: Callable[[Any], None]
    ) -> None:
        self.transaction_shard.execute(decide(self.transactions, self._of_this_life(answer), self.world.now_ms))

    def _of_this_life(self, answer: Callable[[Any], None]) -> Callable[[Any], None]:
        life = self._life
        return lambda response: answer(response) if life == self._life else None

    def take_part(
        self, transactional_id: str, who: ProducerIdAndEpoch, place: tuple[str, int], answer: Callable[[Error], None]
    ) -> None:
        """The rule of the produce path: a partition takes part in the transaction before its first batch."""
        if place in self.outputs and self.outputs[place].has_open_transaction(who):
            answer(Error.NONE)
            return
        self.ask_transactions(
            lambda machine, reply_to, now_ms: machine.add_partitions(
                transactional_id, who, [place], 2, reply_to, now_ms
            ),
            answer,
        )

    def produce(
        self,
        transactional_id: str,
        who: ProducerIdAndEpoch,
        place: tuple[str, int],
        sequence: int,
        value: object,
        answer: Callable[[Error], None],
    ) -> None:
        def append(error: Error) -> None:
            if error is Error.NONE:
                try:
                    self.outputs[place].append(who, sequence, value)
                except KafkaError as refusal:
                    error = refusal.error
            answer(error)

        self.take_part(transactional_id, who, place, append)

    def committed_offset(self, group: str, answer: Callable[[int | None], None]) -> None:
        """OffsetFetch with require_stable: None while a transaction may still change it."""
        machine = self.groups
        value: int | None = None
        if not machine.offsets.is_pending(group, "in", 0):
            commit = machine.offsets.get(group, "in", 0)
            value = commit.offset if commit is not None else 0
        decision = Decision(replies=[Reply(self._of_this_life(answer), value)], is_read=True)
        self.group_shard.execute(decision)

    # ---- markers

    def _take_orders(self, shard: CoordinatorContext[TransactionCoordinator]) -> None:
        orders, shard.machine.pending_markers = shard.machine.pending_markers, []
        for order in orders:
            places = sorted(order.partitions)
            self.world.random.shuffle(places)
            self._send_later(order, places, self._life)

    def _send_later(self, order: TransactionMarkers, left: list[tuple[str, int]], life: int) -> None:
        self.world.after(self.world.random.randint(0, 60), lambda: self._send(order, left, life))

    def _send(self, order: TransactionMarkers, left: list[tuple[str, int]], life: int) -> None:
        """One marker after the other, each some time later; the next life sends them all again."""
        if life != self._life:
            return
        if not left:
            decision = self.transactions.complete_transaction(
                order.transactional_id, order.producer_id, order.producer_epoch, self.world.now_ms
            )
            self.transaction_shard.execute(decision)
            return
        place, *rest = left
        self._mark(order, place)
        self._send_later(order, rest, life)

    def _mark(self, order: TransactionMarkers, place: tuple[str, int]) -> None:
        self.world.tell(
            f"marker {'commit' if order.is_commit else 'abort'} {order.producer_id}/{order.producer_epoch} in {place}"
        )
        if place == GROUP_PLACE:
            append_marker(self.offsets_log, order, 0, self.world.now_ms)  # type: ignore[arg-type]
            self.offsets_log.replicate()  # a marker counts when it is replicated, and this one is waited for
            self.groups.replay_end_transaction_marker(
                TransactionalProducer(order.producer_id, order.producer_epoch), order.is_commit
            )
        else:
            self.outputs[place].mark(order)
