"""The controller service: runs decisions against the metadata store, one at a time and in order.

The order of a change is: decide on the current image, commit to the store, publish the new image to the listeners,
respond. So an image is visible only after its commit, and listeners know new topics before the client that created them
gets the response. After an error of the store the image is loaded again before the next change.

This is the controller of a standalone broker and always active; cluster/controller.py extends it for clusters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, Protocol, TypeVar
from uuid import UUID

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.logs import LogLimiter
from ottla.controller import tree
from ottla.controller.decisions import ottla_version, topic_changes
from ottla.controller.decisions.decision import Decision, with_fence
from ottla.controller.decisions.standalone import check_store, decide_registration
from ottla.controller.decisions.topic_changes import NewPartitions, NewTopic, NewTopicSeed, TopicDefaults, TopicResult
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage
from ottla.controller.image_loader import load_image
from ottla.controller.producer_ids import decide_producer_id_block
from ottla.controller.stores.store import (
    CheckNode,
    MetadataStore,
    Node,
    Outcome,
    StoreAwayError,
    StoreError,
    StoreFullError,
    StoreOperation,
    StoreUnusableError,
    TransactionRefusedError,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")
Decide = Callable[[MetadataImage], Decision[R]]
LOG_INTERVAL_MS: Final = 60_000  # between two log messages about a full store
SEED_MAX: Final = 2**30
SEEDS_PER_SLICE: Final = 250
THREAD_SIZE_MIN: Final = 300  # topics and partitions of a decision that would block the event loop for too long


class LiveSettings(Protocol):
    """The settings of this broker, which change at run time."""

    @property
    def broker(self) -> BrokerSettings: ...

    def with_image(self, image: MetadataImage, /) -> BrokerSettings:
        """The settings with the dynamic settings of this image."""


class ControllerService:
    """Owns the image. All methods run on the event loop; the store does its work elsewhere."""

    attempts_max: ClassVar[int] = 1  # of a change that the store rejects: there is no other writer

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        live: LiveSettings,
        check_configs: topic_changes.ConfigCheck,
        random: Random | None = None,
        images: MetadataCache | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._live = live
        self._check_configs = check_configs
        self._random = random or Random()  # noqa: S311 (placement and names, not secrets)
        self._image = MetadataImage()
        self._images = images or MetadataCache()
        self._change_lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._epoch_version = 0  # of /controller_epoch: every write checks it, which fences a deposed controller
        self._must_reload = False
        self._is_active = False
        self._log_limiter = LogLimiter(LOG_INTERVAL_MS)

    def __repr__(self) -> str:
        state = "deposed or not elected" if not self._is_active else "must reload" if self._must_reload else "ready"
        return f"<ControllerService {state} changes={len(self._running)} {self._image!r}>"

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, as far as that is known without a request to the store."""
        return self._is_active

    async def start(
        self,
        endpoints: Mapping[str, Endpoint],
        *,
        rack: str | None = None,
        cluster_id: str | None = None,
        jmx_port: int = -1,
    ) -> None:
        """Load the image, register this broker and become the controller. Raises StoreUnusableError.

        `cluster_id` is the one in the log directories; a new store adopts it, an existing store must have the same.
        """
        await self._store.open()
        nodes = await self._store.subtree("/")
        image = self._load(nodes)
        check_store(image, cluster_id)
        broker = BrokerImage(
            self._live.broker.node_id, dict(endpoints), rack, 0, jmx_port, features=ottla_version.SUPPORTED
        )
        decision = decide_registration(
            image,
            nodes,
            broker,
            new_cluster_id=cluster_id or tree.encode_uuid(self.new_uuid()),
            now_ms=self._clock.now_ms(),
            minimum=self._live.broker.min_insync_replicas,
        )
        try:
            await self._store.multi(decision.operations)
        except StoreError as error:
            raise StoreUnusableError(f"the broker cannot be registered: {error}") from error
        await self._activate(decision.image, broker)
        logger.info("cluster %s: %d topics", self._image.cluster_id, len(self._image.topics))

    async def _activate(self, image: MetadataImage, broker: BrokerImage) -> None:
        registration = await self._store.get(tree.broker_path(broker.id))
        epoch = await self._store.get(tree.CONTROLLER_EPOCH)
        assert registration is not None
        assert epoch is not None
        self._epoch_version = epoch.version
        self._is_active = True
        registered = broker._replace(epoch=registration.created_id)
        self._publish(image.with_brokers({**image.brokers, broker.id: registered}))
        logger.info(
            "Registered broker %d at path %s with addresses: %s, czxid (broker epoch): %d",
            broker.id,
            tree.broker_path(broker.id),
            ",".join(f"{name}://{end.host}:{end.port}" for name, end in broker.endpoints.items()),
            registered.epoch,
        )
        logger.info(
            "[Controller id=%d] %d successfully elected as the controller. Epoch incremented to %d "
            "and epoch zk version is now %d",
            broker.id,
            broker.id,
            image.controller_epoch,
            epoch.version,
        )

    async def close(self) -> None:
        """Wait for the changes in progress, then close the store."""
        while self._running:
            await asyncio.wait(self._running)
        await self._store.close()

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> list[TopicResult]:
        defaults = TopicDefaults(self._live.broker.num_partitions, self._live.broker.default_replication_factor)
        seeds = await self._make_topic_seeds(len(wanted))

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            return topic_changes.decide_create_topics(image, wanted, defaults, seeds, self._check_configs)

        size = len(wanted) + topic_changes.count_requested_partitions(wanted[:THREAD_SIZE_MIN], defaults)
        return await self._change(decide, validate_only=validate_only, timeout_ms=timeout_ms, size=size)

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID | None]], *, timeout_ms: int | None = None
    ) -> list[TopicResult]:
        is_enabled = self._live.broker.delete_topic_enable

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            return topic_changes.decide_delete_topics(image, wanted, is_enabled=is_enabled)

        size = len(wanted) + self._image.count_partitions(name for name, _ in wanted[:THREAD_SIZE_MIN])
        return await self._change(decide, timeout_ms=timeout_ms, size=size)

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> list[TopicResult]:
        seeds = await self._make_topic_seeds(len(wanted))

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            return topic_changes.decide_create_partitions(image, wanted, seeds)

        size = len(wanted) + sum(more.partition_count for more in wanted[:THREAD_SIZE_MIN])
        return await self._change(decide, validate_only=validate_only, timeout_ms=timeout_ms, size=size)

    async def change(
        self,
        decide: Callable[[MetadataImage], Decision[R]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        size: int = 0,
        is_urgent: bool = False,
    ) -> R:
        """Run any other decision, for instance of settings. An urgent one does not wait for other brokers."""
        return await self._change(
            decide, validate_only=validate_only, timeout_ms=timeout_ms, size=size, is_urgent=is_urgent
        )

    async def allocate_producer_ids(self, broker: int | None = None) -> range:
        """Allocate a block of producer ids for this broker or another one."""
        return await self._shielded(
            self._allocate_producer_ids(self._live.broker.node_id if broker is None else broker)
        )

    # ---- one change

    async def _change(
        self,
        decide: Decide[R],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        size: int = 0,
        is_urgent: bool = False,
    ) -> R:
        """Run a change. After the timeout the request gets REQUEST_TIMED_OUT, but as in Kafka the change may happen."""
        if timeout_ms is not None and timeout_ms <= 0:
            raise KafkaError(Error.REQUEST_TIMED_OUT)
        seconds = None if timeout_ms is None else timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                reply, sequence = await self._shielded(self._run_change(decide, validate_only, size))
        except TimeoutError as error:
            raise KafkaError(Error.REQUEST_TIMED_OUT) from error
        if not is_urgent and not validate_only:
            await self._await_acknowledged(sequence)
        return reply

    async def _shielded(self, work: Coroutine[Any, Any, R]) -> R:
        """Shield a change from cancellation: a cancelled one could leave the store ahead of the image."""
        task = tasks.spawn_awaited(work, "a change of the metadata")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _run_change(self, decide: Decide[R], validate_only: bool, size: int) -> tuple[R, int]:
        async with self._change_lock:
            await self._reload_if_needed()
            return await self._decide_and_commit(decide, validate_only, size)

    async def _decide_and_commit(self, decide: Decide[R], validate_only: bool, size: int) -> tuple[R, int]:
        """Decide and commit a change. Returns the reply, and the change's sequence number for other brokers."""
        for number in range(self.attempts_max):
            decision = await self._decide(decide, size)
            if validate_only or not self._is_change(decision):
                break
            try:
                await self._commit(decision.operations)
            except TransactionRefusedError as refused:
                # Another writer has changed a node, or a part of this change is already done: reload, then decide
                # again.
                failure = self._on_store_error(refused)
                if number == self.attempts_max - 1:
                    raise failure from refused
                await self._reload_if_needed()
                continue
            self._publish(decision.image)
            break
        return decision.reply, self._sequence()

    async def _decide(self, decide: Decide[R], size: int) -> Decision[R]:
        if size > THREAD_SIZE_MIN:  # decisions are pure and images immutable, so any thread can run them
            return await asyncio.to_thread(decide, self._image)
        return decide(self._image)

    def _is_change(self, decision: Decision[Any]) -> bool:
        return bool(decision.operations)

    def _sequence(self) -> int:
        """Return the sequence number of the newest change in the feed of other brokers."""
        return 0

    async def _await_acknowledged(self, sequence: int) -> None:
        """Wait until other brokers have applied a change."""

    async def _allocate_producer_ids(self, broker: int) -> range:
        async with self._change_lock:
            await self._reload_if_needed()
            try:
                node = await self._store.get(tree.PRODUCER_ID_BLOCK)
            except StoreError as error:
                raise self._on_store_error(error) from error
            try:
                decision = decide_producer_id_block(self._image, node, broker)
            except KafkaError as refusal:
                if self._log_limiter.is_due(self._clock.now_ms()):
                    logger.error("cannot allocate producer ids: %s", refusal)
                raise
            try:
                # A retriable error: producers wait until the disk has space again.
                await self._commit(decision.operations, when_full=Error.KAFKA_STORAGE_ERROR)
            except TransactionRefusedError as refused:
                raise self._on_store_error(refused) from refused
            return decision.reply

    async def _reload_if_needed(self) -> None:
        if not self.is_active:
            raise KafkaError(Error.NOT_CONTROLLER)
        if self._must_reload:
            try:
                await self._reload()
            except StoreError as error:
                raise self._on_store_error(error) from error

    async def _commit(
        self, operations: Sequence[StoreOperation], when_full: Error = Error.UNKNOWN_SERVER_ERROR
    ) -> list[Outcome]:
        """Commit the transactions. `when_full` is the error for a full disk, by default one that is not retriable.

        Raises TransactionRefusedError if the store has changed since the image of the decision.
        """
        fence = CheckNode(tree.CONTROLLER_EPOCH, self._epoch_version)
        outcomes: list[Outcome] = []
        try:
            for piece in self._transactions(operations):
                outcomes += (await self._store.multi(with_fence(fence, piece)))[1:]
        except TransactionRefusedError as refused:
            if refused.operation != fence:
                raise
            logger.warning("another controller was elected; this one is fenced")
            self._on_deposed()
            raise KafkaError(Error.NOT_CONTROLLER) from refused
        except StoreFullError as full:
            raise self._on_store_full(full, when_full) from full
        except StoreError as error:
            raise self._on_store_error(error) from error
        return outcomes

    def _transactions(self, operations: Sequence[StoreOperation]) -> Iterator[Sequence[StoreOperation]]:
        """Yield the transactions of a change."""
        if operations:
            yield operations

    def _on_deposed(self) -> None:
        self._is_active = False

    def _on_store_error(self, error: StoreError) -> KafkaError:
        self._must_reload = True
        if isinstance(error, StoreAwayError):  # the client retries at a controller that knows the outcome
            logger.warning("a change is abandoned: %s", error)
            return KafkaError(Error.NOT_CONTROLLER)
        logger.error("the metadata store refused a change: %s", error)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"The metadata store refused the change: {error}")

    def _on_store_full(self, full: StoreFullError, error: Error) -> KafkaError:
        self._must_reload = True
        if self._log_limiter.is_due(self._clock.now_ms()):
            logger.error("changes of topics and settings are refused until the disk has free space: %s", full)
        return KafkaError(error, f"There is no space on the disk for the change: {full}")

    def _publish(self, image: MetadataImage) -> None:
        self._image = image
        self._images.publish(image)

    async def _reload(self) -> None:
        nodes = await self._store.subtree("/")
        self._epoch_version = nodes[tree.CONTROLLER_EPOCH].version
        self._must_reload = False
        self._publish(self._load(nodes))

    def _load(self, nodes: Mapping[str, Node]) -> MetadataImage:
        try:
            return load_image(nodes)
        except tree.DamagedNodeError as error:
            raise StoreUnusableError(
                f"the metadata store holds a node that cannot be read: {error}. Restore the store from a backup."
            ) from error

    # ---- random values

    async def _make_topic_seeds(self, count: int) -> list[NewTopicSeed]:
        seeds: list[NewTopicSeed] = []
        while more := range(min(SEEDS_PER_SLICE, count - len(seeds))):
            if seeds:
                await asyncio.sleep(0)  # a request for thousands of topics must not block the loop
            seeds += [NewTopicSeed(self.new_uuid(), *(self._random.randrange(SEED_MAX) for _ in "ab")) for _ in more]
        return seeds

    def new_uuid(self) -> UUID:
        """Return a new id. As in Kafka, it never starts with a dash, which command lines would parse as an option."""
        while True:
            value = UUID(int=self._random.getrandbits(128), version=4)
            if not tree.encode_uuid(value).startswith("-"):
                return value
