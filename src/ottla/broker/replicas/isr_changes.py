"""Asks the controller for other in-sync replicas, as leaders want them (AlterPartition, KIP-497).

Rules:
1. One request at a time, with all proposals that have come up since; the next one goes out when it is answered.
2. A proposal whose fate is unknown is sent again until it is known or the partition has a newer role: it names the
   state that it replaces, so it can take effect only once.
3. Replicas that keep up join at once; those that lag are looked for by the clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.broker.slices import for_each_partition
from ottla.replication.leading import NOT_DONE, IsrProposal
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

logger = logging.getLogger(__name__)

TOGETHER_MAX: Final = 2_000
RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 2.0
# Something has changed that we do not know yet: it will be told. Asked again late, for the case that it was not.
OVERTAKEN: Final = (
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
    Error.UNKNOWN_TOPIC_ID,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NEW_LEADER_ELECTED,
    Error.INVALID_REQUEST,
)
OVERTAKEN_SECONDS: Final = 3.0


class Verdict(Protocol):
    """The controller's answer to one proposal."""

    @property
    def error(self) -> Error: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def isr(self) -> tuple[int, ...]: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def leader_recovery_state(self) -> int: ...


Sent = tuple[Partition, IsrProposal]
AlterPartitions = Callable[[Sequence[IsrProposal]], Awaitable[Sequence[Verdict]]]


class IsrChanges:
    """One for each broker of a cluster."""

    def __init__(
        self,
        replicas: ReplicaSet,
        clock: Clock,
        alter_partitions: AlterPartitions,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failures = 0
        self._replicas = replicas
        self._clock = clock
        self._alter_partitions = alter_partitions
        self._broker_epoch = broker_epoch
        self._wanting: dict[Partition, None] = {}
        self._unknown: list[Sent] = []  # sent, but nobody knows what became of them
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        replicas.on_isr = self.note
        for partition in replicas.partitions.values():
            partition.on_isr = self.note
            self.note(partition)

    def start(self) -> None:
        self._tasks = [
            tasks.keep_running(self._look, "the look for lagging replicas"),
            tasks.keep_running(self._run, "asking for ISR changes"),
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def note(self, partition: Partition) -> None:
        """A leader has something to propose, or thinks so."""
        self._wanting[partition] = None
        self._news.set()

    # ---- by the clock

    async def _look(self) -> None:
        """Twice in the time that a replica may lag, as with Kafka."""
        while True:
            await asyncio.sleep(max(0.05, self._replicas.lag_ms_max / 2000))
            await for_each_partition(self._replicas, self._look_at)

    def _look_at(self, partition: Partition) -> None:
        if partition.is_leader and partition.replica_count > 1 and partition.wants_isr_change(self._now_ms()):
            self.note(partition)

    # ---- one request after the other

    async def _run(self) -> None:
        wait = RETRY_SECONDS
        while True:
            if not self._unknown:
                await self._news.wait()
            self._news.clear()
            proposals = self._collect()
            if not proposals:
                continue
            await self._propose(proposals)
            if self._unknown:
                self.failures += len(self._unknown)
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_SECONDS_MAX)
            else:
                wait = RETRY_SECONDS

    async def _propose(self, proposals: list[Sent]) -> None:
        """Whatever happens, a proposal whose fate is unknown goes out again, beside those that came up meanwhile."""
        try:
            verdicts = await self._alter_partitions([proposal for _, proposal in proposals])
            for (partition, proposal), verdict in zip(proposals, verdicts, strict=True):
                self._take_or_keep(partition, proposal, verdict)
        except KafkaError as problem:
            logger.info("the controller did not change %d ISRs yet: %s", len(proposals), problem)
            self._unknown += proposals
        except Exception:
            self._unknown += proposals
            raise

    def _collect(self) -> list[Sent]:
        """What is to be sent now: first what is not known yet, if the partition still waits for it."""
        proposals = [entry for entry in dict.fromkeys(self._unknown) if entry[0].awaits(entry[1])]
        self._unknown = []
        now_ms, own_epoch = self._now_ms(), self._broker_epoch()
        for partition in list(self._wanting)[: TOGETHER_MAX - len(proposals)]:
            del self._wanting[partition]
            try:
                proposal = partition.isr_proposal(now_ms, own_epoch)
            except AssertionError:  # one bad partition must not stop the others
                logger.exception("nothing is proposed for %s", partition.name)
                continue
            if proposal is not None:
                proposals.append((partition, proposal))
        if self._wanting:
            self._news.set()
        return proposals

    def _take_or_keep(self, partition: Partition, proposal: IsrProposal, verdict: Verdict) -> None:
        try:
            self._take(partition, proposal, verdict)
        except Exception:  # one bad partition must not stop the others
            logger.exception("%s cannot take %s", partition.name, verdict)
            self._unknown.append((partition, proposal))

    def _take(self, partition: Partition, proposal: IsrProposal, verdict: Verdict) -> None:
        error = verdict.error
        partition.on_isr_answer(
            proposal,
            error,
            verdict.leader_epoch,
            verdict.isr,
            verdict.partition_epoch,
            verdict.leader_recovery_state != 0,
        )
        if error is Error.NONE:
            self._count(partition, proposal, set(verdict.isr))
            return
        self.failures += 1
        # A replica whose broker is just stopping is refused for each of its partitions: not worth a line each.
        log = logger.debug if error is Error.INELIGIBLE_REPLICA else logger.info
        log("%s: the controller answers %s to %s", partition.name, error.name, proposal)
        loop = asyncio.get_running_loop()
        if error in OVERTAKEN:
            loop.call_later(OVERTAKEN_SECONDS, self._ask_again, partition, proposal)
        elif error not in NOT_DONE:
            self._unknown.append((partition, proposal))

    def _ask_again(self, partition: Partition, proposal: IsrProposal) -> None:
        if partition.awaits(proposal):
            self._unknown.append((partition, proposal))
            self._news.set()

    def _count(self, partition: Partition, proposal: IsrProposal, after: set[int]) -> None:
        before = set(proposal.replaced)
        self.expands += bool(after - before)
        self.shrinks += bool(before - after)
        if after != before:
            logger.info("%s: in sync are %s now, before %s", partition.name, sorted(after), sorted(before))

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<IsrChanges {len(self._wanting)} wanted, {len(self._unknown)} unknown>"
