"""The controller at work: runs the decisions of machine.py against the store, one at a time, in order.

The order of a change: decide on the current image, commit to the store, take the new image, tell the listeners,
answer. So nobody ever sees an image that a crash could take back, and a listener has seen the new topics before the
client that created them gets its answer. When the store fails, the image is loaded again before the next change.

This is the controller of a broker that is alone, always active; cluster/controller.py has what a cluster adds to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final, Protocol, TypeVar
from uuid import UUID

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.log_limiter import LogLimiter
from ottla.controller import tree
from ottla.controller.auto_create import AutoCreation
from ottla.controller.decisions import machine, ottla_version
from ottla.controller.decisions.machine import Decision, Lot, MorePartitions, NewTopic, TopicDefaults, TopicResult
from ottla.controller.decisions.splitting import fenced
from ottla.controller.holder import ImageHolder, ImageListener
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.controller.loading import load_image
from ottla.controller.producer_ids import ProducerIds, decide_producer_ids
from ottla.controller.start import check_start, decide_start
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
COMPLAINT_MS: Final = 60_000  # between two messages about a store that is full
LOT_MAX: Final = 2**30
LOTS_AT_ONCE: Final = 250
THREAD_SIZE_MIN: Final = 300  # topics and partitions of a decision that would keep the loop too long


class ControllerOptions(Protocol):
    """What the controller needs to know of the broker's settings."""

    @property
    def node_id(self) -> int: ...

    @property
    def num_partitions(self) -> int: ...

    @property
    def default_replication_factor(self) -> int: ...

    @property
    def delete_topic_enable(self) -> bool: ...

    @property
    def min_insync_replicas(self) -> int: ...


class ControllerService:
    """Owns the image. All methods run on the event loop; the store does its work elsewhere."""

    attempts_max: ClassVar[int] = 1  # of a change that the store has refused: nobody else writes here

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        options: ControllerOptions,
        check_configs: machine.ConfigCheck,
        random: Random | None = None,
        images: ImageHolder | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._check_configs = check_configs
        self._random = random or Random()  # noqa: S311 (placement and names, not secrets)
        self._image = MetadataImage()
        self._images = images or ImageHolder()
        self._one_at_a_time = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._epoch_version = 0  # of the node /controller_epoch: every write checks it, so a deposed controller fails
        self._must_reload = False
        self._is_active = False
        self._log_limiter = LogLimiter(COMPLAINT_MS)
        self._auto_creation = AutoCreation(self.create_topics, clock)
        self.producer_ids = ProducerIds(self.allocate_producer_ids)

    def __repr__(self) -> str:
        state = "deposed or not elected" if not self._is_active else "must reload" if self._must_reload else "ready"
        return f"<ControllerService {state} changes={len(self._running)} {self._image!r}>"

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def is_active(self) -> bool:
        """Whether this is the controller, as far as anybody can know without asking the store."""
        return self._is_active

    def on_image(self, listener: ImageListener) -> None:
        """Call `listener(old, new)` on the loop with every new image, before anybody is answered."""
        self._images.on_image(listener)

    async def start(
        self,
        endpoints: Mapping[str, Endpoint],
        *,
        rack: str | None = None,
        cluster_id: str | None = None,
        jmx_port: int = -1,
    ) -> None:
        """Load the image, register this broker, become the controller. StoreUnusableError says what is in the way.

        `cluster_id` is what the log folders say; a new store takes it over, another one must agree with it.
        """
        await self._store.open()
        nodes = await self._store.subtree("/")
        image = self._load(nodes)
        check_start(image, cluster_id)
        broker = BrokerImage(
            self._options.node_id, dict(endpoints), rack, 0, jmx_port, features=ottla_version.SUPPORTED
        )
        decision = decide_start(
            image,
            nodes,
            broker,
            new_cluster_id=cluster_id or tree.encode_uuid(self.new_uuid()),
            now_ms=self._clock.now_ms(),
            minimum=self._options.min_insync_replicas,
        )
        try:
            await self._store.multi(decision.operations)
        except StoreError as error:
            raise StoreUnusableError(f"the broker cannot be registered: {error}") from error
        await self._take_start(decision.image, broker)
        logger.info("cluster %s: %d topics", self._image.cluster_id, len(self._image.topics))

    async def _take_start(self, image: MetadataImage, broker: BrokerImage) -> None:
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
        """Let the changes that are under way end, then close the store."""
        while self._running:
            await asyncio.wait(self._running)
        await self._store.close()

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> list[TopicResult]:
        defaults = TopicDefaults(self._options.num_partitions, self._options.default_replication_factor)
        lots = await self._draw_lots(len(wanted))

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            return machine.decide_create_topics(image, wanted, defaults, lots, self._check_configs)

        size = len(wanted) + machine.requested_partitions(wanted[:THREAD_SIZE_MIN], defaults)
        return await self._change(decide, validate_only=validate_only, timeout_ms=timeout_ms, size=size)

    async def auto_create(self, names: Iterable[str]) -> None:
        """Create topics that somebody asked for, with the broker's defaults; the image tells which of them exist."""
        await self._auto_creation.ensure(names)

    async def delete_topics(
        self, wanted: Sequence[tuple[str | None, UUID | None]], *, timeout_ms: int | None = None
    ) -> list[TopicResult]:
        is_enabled = self._options.delete_topic_enable

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            return machine.decide_delete_topics(image, wanted, is_enabled=is_enabled)

        size = len(wanted) + self._image.count_partitions(name for name, _ in wanted[:THREAD_SIZE_MIN])
        return await self._change(decide, timeout_ms=timeout_ms, size=size)

    async def create_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> list[TopicResult]:
        lots = await self._draw_lots(len(wanted))

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            return machine.decide_create_partitions(image, wanted, lots)

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
        """Run any other decision (settings, for instance) in its turn. An urgent one does not wait to be seen."""
        return await self._change(
            decide, validate_only=validate_only, timeout_ms=timeout_ms, size=size, is_urgent=is_urgent
        )

    async def allocate_producer_ids(self, broker: int | None = None) -> range:
        """A block of producer ids that nobody has had before, for this broker or another one."""
        return await self._shielded(self._allocate_producer_ids(self._options.node_id if broker is None else broker))

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
        """A request whose time is up gets REQUEST_TIMED_OUT; its change may still happen, as in Kafka."""
        if timeout_ms is not None and timeout_ms <= 0:
            raise KafkaError(Error.REQUEST_TIMED_OUT)
        seconds = None if timeout_ms is None else timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                reply, sequence = await self._shielded(self._run_change(decide, validate_only, size))
        except TimeoutError as error:
            raise KafkaError(Error.REQUEST_TIMED_OUT) from error
        if not is_urgent and not validate_only:
            await self._await_seen(sequence)
        return reply

    async def _shielded(self, work: Coroutine[Any, Any, R]) -> R:
        """Once begun, a change ends: a client that goes away must not leave the store ahead of the image."""
        task = tasks.ask(work, "a change of the metadata")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _run_change(self, decide: Decide[R], validate_only: bool, size: int) -> tuple[R, int]:
        async with self._one_at_a_time:
            await self._make_ready()
            return await self._attempt(decide, validate_only, size)

    async def _attempt(self, decide: Decide[R], validate_only: bool, size: int) -> tuple[R, int]:
        """The reply, and the number under which other brokers see the change."""
        for number in range(self.attempts_max):
            decision = await self._decide(decide, size)
            if validate_only or not self._is_change(decision):
                break
            try:
                await self._commit(decision.operations)
            except TransactionRefusedError as refused:
                # Somebody else has written there, or a part of this change is already done: look, then decide again.
                failure = self._store_failed(refused)
                if number == self.attempts_max - 1:
                    raise failure from refused
                await self._make_ready()
                continue
            self._publish(decision.image)
            break
        return decision.reply, self._sequence()

    async def _decide(self, decide: Decide[R], size: int) -> Decision[R]:
        if size > THREAD_SIZE_MIN:  # decisions are pure and the image never changes: any thread will do
            return await asyncio.to_thread(decide, self._image)
        return decide(self._image)

    def _is_change(self, decision: Decision[Any]) -> bool:
        return bool(decision.operations)

    def _sequence(self) -> int:
        """The number under which other brokers see the newest change."""
        return 0

    async def _await_seen(self, sequence: int) -> None:
        """Wait until other brokers have seen a change."""

    async def _allocate_producer_ids(self, broker: int) -> range:
        async with self._one_at_a_time:
            await self._make_ready()
            try:
                node = await self._store.get(tree.PRODUCER_ID_BLOCK)
            except StoreError as error:
                raise self._store_failed(error) from error
            try:
                decision = decide_producer_ids(self._image, node, broker)
            except KafkaError as refusal:
                if self._log_limiter.is_due(self._clock.now_ms()):
                    logger.error("no producer ids can be given: %s", refusal)
                raise
            try:
                # Producers that wait for an id shall wait for room, too.
                await self._commit(decision.operations, when_full=Error.KAFKA_STORAGE_ERROR)
            except TransactionRefusedError as refused:
                raise self._store_failed(refused) from refused
            return decision.reply

    async def _make_ready(self) -> None:
        if not self.is_active:
            raise KafkaError(Error.NOT_CONTROLLER)
        if self._must_reload:
            try:
                await self._reload()
            except StoreError as error:
                raise self._store_failed(error) from error

    async def _commit(
        self, operations: Sequence[StoreOperation], when_full: Error = Error.UNKNOWN_SERVER_ERROR
    ) -> list[Outcome]:
        """`when_full` is what the client is told on a full disk; by default an error that ends its attempts.

        Raises TransactionRefusedError if the store holds something else than the decision was made on.
        """
        fence = CheckNode(tree.CONTROLLER_EPOCH, self._epoch_version)
        outcomes: list[Outcome] = []
        try:
            for piece in self._pieces(operations):
                outcomes += (await self._store.multi(fenced(fence, piece)))[1:]
        except TransactionRefusedError as refused:
            if refused.operation != fence:
                raise
            logger.warning("another controller has taken over; this one writes nothing any more")
            self._on_deposed()
            raise KafkaError(Error.NOT_CONTROLLER) from refused
        except StoreFullError as full:
            raise self._store_full(full, when_full) from full
        except StoreError as error:
            raise self._store_failed(error) from error
        return outcomes

    def _pieces(self, operations: Sequence[StoreOperation]) -> Iterator[Sequence[StoreOperation]]:
        """The transactions that a change takes."""
        if operations:
            yield operations

    def _on_deposed(self) -> None:
        self._is_active = False

    def _store_failed(self, error: StoreError) -> KafkaError:
        self._must_reload = True
        if isinstance(error, StoreAwayError):  # whoever asks again finds a controller that knows what happened
            logger.warning("a change is given up: %s", error)
            return KafkaError(Error.NOT_CONTROLLER)
        logger.error("the metadata store refused a change: %s", error)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, f"The metadata store refused the change: {error}")

    def _store_full(self, full: StoreFullError, error: Error) -> KafkaError:
        self._must_reload = True
        if self._log_limiter.is_due(self._clock.now_ms()):
            logger.error("changes of topics and settings are refused until there is room on the disk: %s", full)
        return KafkaError(error, f"There is no room on the disk for the change: {full}")

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

    # ---- chance

    async def _draw_lots(self, count: int) -> list[Lot]:
        lots: list[Lot] = []
        while more := range(min(LOTS_AT_ONCE, count - len(lots))):
            if lots:
                await asyncio.sleep(0)  # somebody wants thousands of topics: others have their turn
            lots += [Lot(self.new_uuid(), *(self._random.randrange(LOT_MAX) for _ in "ab")) for _ in more]
        return lots

    def new_uuid(self) -> UUID:
        """Kafka hands out no id whose text begins with a dash: command lines would take it for an option."""
        while True:
            value = UUID(int=self._random.getrandbits(128), version=4)
            if not tree.encode_uuid(value).startswith("-"):
                return value
