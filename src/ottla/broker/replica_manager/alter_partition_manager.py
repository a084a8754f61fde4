"""Proposes ISR changes of leaders to the controller (AlterPartition, KIP-497; Kafka's AlterPartitionManager).

Rules:
1. One request at a time, with all proposals so far; the next one follows its response.
2. A proposal with an unknown result is sent again until the result is known or the partition has a newer role. A
proposal contains the state that it replaces, so it cannot take effect twice.
3. Replicas that catch up join the ISR at once; lagging replicas are found periodically.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.broker.offload import for_each_partition
from ottla.replication.leader_state import REJECTED_ERRORS, AlterPartitionProposal
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

logger = logging.getLogger(__name__)

PROPOSALS_PER_REQUEST_MAX: Final = 2_000
RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 2.0
# The partition has changed and the new state will arrive; otherwise it is proposed again later.
STALE_STATE_ERRORS: Final = (
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_UPDATE_VERSION,
    Error.UNKNOWN_TOPIC_ID,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NEW_LEADER_ELECTED,
    Error.INVALID_REQUEST,
)
STALE_STATE_RETRY_SECONDS: Final = 3.0


class AlterPartitionResult(Protocol):
    """The controller's result of one proposal."""

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


SentProposal = tuple[Partition, AlterPartitionProposal]
AlterPartitions = Callable[[Sequence[AlterPartitionProposal]], Awaitable[Sequence[AlterPartitionResult]]]


class AlterPartitionManager:
    """One per broker of a cluster."""

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
        self._pending: dict[Partition, None] = {}
        self._unresolved: list[SentProposal] = []  # sent, with an unknown result
        self._wakeup = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        replicas.on_isr = self.submit
        for partition in replicas.partitions.values():
            partition.on_isr_proposal_due = self.submit
            self.submit(partition)

    def start(self) -> None:
        self._tasks = [
            tasks.spawn_restarting(self._shrink_periodically, "checking for lagging replicas"),
            tasks.spawn_restarting(self._run, "proposing ISR changes"),
        ]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def submit(self, partition: Partition) -> None:
        """Check whether this leader has a proposal, and send it."""
        self._pending[partition] = None
        self._wakeup.set()

    # ---- periodic

    async def _shrink_periodically(self) -> None:
        """Remove lagging replicas from ISRs, twice per replica.lag.time.max.ms, as in Kafka."""
        while True:
            await asyncio.sleep(max(0.05, self._replicas.lag_ms_max / 2000))
            await for_each_partition(self._replicas, self._check_lagging)

    def _check_lagging(self, partition: Partition) -> None:
        if partition.is_leader and partition.replica_count > 1 and partition.wants_isr_change(self._now_ms()):
            self.submit(partition)

    # ---- one request after the other

    async def _run(self) -> None:
        wait = RETRY_SECONDS
        while True:
            if not self._unresolved:
                await self._wakeup.wait()
            self._wakeup.clear()
            proposals = self._collect()
            if not proposals:
                continue
            await self._propose(proposals)
            if self._unresolved:
                self.failures += len(self._unresolved)
                await asyncio.sleep(wait)
                wait = min(2 * wait, RETRY_SECONDS_MAX)
            else:
                wait = RETRY_SECONDS

    async def _propose(self, proposals: list[SentProposal]) -> None:
        """Send all proposals, including those with an unknown result."""
        try:
            verdicts = await self._alter_partitions([proposal for _, proposal in proposals])
            for (partition, proposal), verdict in zip(proposals, verdicts, strict=True):
                self._apply_or_keep(partition, proposal, verdict)
        except KafkaError as problem:
            logger.info("the controller has not changed %d ISRs yet: %s", len(proposals), problem)
            self._unresolved += proposals
        except Exception:
            self._unresolved += proposals
            raise

    def _collect(self) -> list[SentProposal]:
        """Return the proposals to send now: first those with an unknown result that are still pending."""
        proposals = [entry for entry in dict.fromkeys(self._unresolved) if entry[0].is_pending_proposal(entry[1])]
        self._unresolved = []
        now_ms, own_epoch = self._now_ms(), self._broker_epoch()
        for partition in list(self._pending)[: PROPOSALS_PER_REQUEST_MAX - len(proposals)]:
            del self._pending[partition]
            try:
                proposal = partition.propose_isr_change(now_ms, own_epoch)
            except AssertionError:  # one damaged partition must not stop the others
                logger.exception("nothing is proposed for %s", partition.name)
                continue
            if proposal is not None:
                proposals.append((partition, proposal))
        if self._pending:
            self._wakeup.set()
        return proposals

    def _apply_or_keep(
        self, partition: Partition, proposal: AlterPartitionProposal, verdict: AlterPartitionResult
    ) -> None:
        try:
            self._apply(partition, proposal, verdict)
        except Exception:  # one damaged partition must not stop the others
            logger.exception("%s cannot apply %s", partition.name, verdict)
            self._unresolved.append((partition, proposal))

    def _apply(self, partition: Partition, proposal: AlterPartitionProposal, verdict: AlterPartitionResult) -> None:
        error = verdict.error
        partition.on_alter_partition_response(
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
        # A replica on a stopping broker is rejected for each of its partitions, which is not logged individually.
        log = logger.debug if error is Error.INELIGIBLE_REPLICA else logger.info
        log("%s: the controller answers %s to %s", partition.name, error.name, proposal)
        loop = asyncio.get_running_loop()
        if error in STALE_STATE_ERRORS:
            loop.call_later(STALE_STATE_RETRY_SECONDS, self._retry, partition, proposal)
        elif error not in REJECTED_ERRORS:
            self._unresolved.append((partition, proposal))

    def _retry(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        if partition.is_pending_proposal(proposal):
            self._unresolved.append((partition, proposal))
            self._wakeup.set()

    def _count(self, partition: Partition, proposal: AlterPartitionProposal, after: set[int]) -> None:
        before = set(proposal.replaced)
        self.expands += bool(after - before)
        self.shrinks += bool(before - after)
        if after != before:
            logger.info("%s: ISR is %s now, before %s", partition.name, sorted(after), sorted(before))

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<AlterPartitionManager {len(self._pending)} wanted, {len(self._unresolved)} unknown>"
