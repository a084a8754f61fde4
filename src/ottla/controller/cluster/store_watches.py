"""The active controller's watches in the store: brokers, topics, settings, ACLs, tokens, deletion marks, notifications.

A watch only reports that something may have changed; external_changes.py and leader_election.py decide what follows.
The controller's own writes fire the same watches, which then find no change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar
from uuid import UUID

from ottla.base.clock import Clock
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.cluster.controller import ClusterController, RegisteredBrokers
from ottla.controller.decisions import external_changes
from ottla.controller.decisions.acl_changes import decide_external_acls
from ottla.controller.decisions.token_changes import decide_external_tokens
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.image_loader import NodeReader, load_brokers, load_image_leniently, load_topics
from ottla.controller.stores.store import (
    DeleteNode,
    Node,
    SessionStore,
    TransactionRefusedError,
)
from ottla.controller.work_queue import WorkQueue
from ottla.security.acls import ResourcePattern

logger = logging.getLogger(__name__)

NOTIFICATION_RETENTION_MS: Final = 15 * 60 * 1000  # as in Kafka: all brokers have read it by then
ISR_NOTIFICATIONS: Final = "/isr_change_notification"
LOG_DIR_NOTIFICATIONS: Final = "/log_dir_event_notification"
TOPICS_PER_ROUND: Final = 200  # topics; more would block the event loop for too long
WATCHES_PER_SLICE: Final = 100
INLINE_NAMES_MAX: Final = 1_000  # topic names; more are compared in a worker thread, and less often
LISTING_TIME_SHARE: Final = 0.05  # the maximum share of time for these comparisons
SWEEP_SECONDS: Final = 5.0
SWEEP_PARTITIONS: Final = 500  # in one sweep; a larger topic is swept alone

T = TypeVar("T")

Delete = Callable[[Iterable[str]], Awaitable[None]]


class ChangeNotifications(Generic[T]):
    """Change notifications of one kind: nodes that Kafka 3.x creates for each change of settings, ACLs or tokens.

    As in Kafka, they are deleted after a while and not at once, because other brokers may also read them.
    """

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        delete: Delete,
        parents: tuple[str, ...],
        subject_of: Callable[[bytes], T | None],
        take: Callable[[set[T]], Awaitable[None]],
    ) -> None:
        """`subject_of` decodes the subject of a notification, None if it is unreadable; `take` reloads the subjects."""
        self._store = store
        self._clock = clock
        self._delete = delete
        self._parents = parents
        self._subject_of = subject_of
        self._handler = take
        self._seen: dict[str, int] = {}  # path of a notification -> time at which it was first seen

    def reset(self) -> None:
        self._seen.clear()

    async def process(self) -> None:
        paths = [f"{parent}/{name}" for parent in self._parents for name in await self._store.children(parent)]
        new = [path for path in paths if path not in self._seen]
        nodes = [await self._store.get(path) for path in new]
        subjects = {
            subject for node in nodes if node is not None and (subject := self._subject_of(node.data)) is not None
        }
        if subjects:
            await self._handler(subjects)
        now_ms = self._clock.monotonic_ms()
        self._seen.update(dict.fromkeys(new, now_ms))
        await self._purge_obsolete(paths, now_ms)

    async def _purge_obsolete(self, paths: list[str], now_ms: int) -> None:
        listed = set(paths)
        old = [path for path, seen_ms in self._seen.items() if now_ms - seen_ms > NOTIFICATION_RETENTION_MS]
        await self._delete([path for path in old if path in listed])
        for path in old:
            del self._seen[path]

    def __repr__(self) -> str:
        return f"<ChangeNotifications {', '.join(self._parents)}: {len(self._seen)}>"


class SecurityNotifications:
    """Change notifications of ACLs and delegation tokens."""

    def __init__(self, store: SessionStore, controller: ClusterController, clock: Clock, delete: Delete) -> None:
        self._store = store
        self._controller = controller
        self.acls: ChangeNotifications[ResourcePattern] = ChangeNotifications(
            store, clock, delete, acl_nodes.CHANGE_NOTIFICATIONS, acl_nodes.decode_changed_pattern, self._update_acls
        )
        self.tokens: ChangeNotifications[str] = ChangeNotifications(
            store,
            clock,
            delete,
            (token_nodes.CHANGE_NOTIFICATIONS,),
            token_nodes.decode_changed_token,
            self._update_tokens,
        )

    def reset(self) -> None:
        self.acls.reset()
        self.tokens.reset()

    async def _update_acls(self, changed: set[ResourcePattern]) -> None:
        patterns = sorted(changed)
        count = await self._controller.change_after_reading(
            lambda: self._read(list(map(acl_nodes.acl_path, patterns))),
            lambda image, nodes: decide_external_acls(image, patterns, nodes),
        )
        if count:
            logger.info("[Controller] ACLs of %d resources were changed in the store by another tool", count)

    async def _update_tokens(self, changed: set[str]) -> None:
        token_ids = sorted(changed)
        count = await self._controller.change_after_reading(
            lambda: self._read(list(map(token_nodes.token_path, token_ids))),
            lambda image, nodes: decide_external_tokens(image, token_ids, nodes),
        )
        if count:
            logger.info("[Controller] %d delegation tokens were changed in the store by another tool", count)

    async def _read(self, paths: list[str]) -> dict[str, Node]:
        nodes = {path: await self._store.get(path) for path in paths}
        return {path: node for path, node in nodes.items() if node is not None}

    def __repr__(self) -> str:
        return f"<SecurityNotifications {self.acls!r} {self.tokens!r}>"


class StoreWatches:
    """The watches; active between start() and stop(), which is while this broker is the controller."""

    def __init__(
        self,
        store: SessionStore,
        controller: ClusterController,
        clock: Clock,
        new_ids: Iterator[UUID],
        is_deletion_enabled: Callable[[], bool],
    ) -> None:
        self._store = store
        self._controller = controller
        self._clock = clock
        self._new_ids = new_ids
        self._is_deletion_enabled = is_deletion_enabled
        self._end_watches: list[Callable[[], None]] = []
        self._end_topic_watches: dict[str, Callable[[], None]] = {}
        self._changed_topics: set[str] = set()
        self._configs: ChangeNotifications[tuple[str, str]] = ChangeNotifications(
            store,
            clock,
            self._delete,
            (tree.CONFIG_CHANGES,),
            external_changes.decode_changed_entity,
            self._update_configs,
        )
        self._security = SecurityNotifications(store, controller, clock, self._delete)
        self._logged_marks: tuple[str, ...] = ()  # as last logged
        self._watched: MetadataImage | None = None  # the image whose topics all have watches
        self._listing_from = 0.0  # the earliest time of the next comparison of all topic names
        self._listing: asyncio.TimerHandle | None = None
        self._to_sweep: list[str] = []
        self._registrations: dict[str, tuple[Node, BrokerImage]] = {}  # as last read
        self._sweeping: asyncio.TimerHandle | None = None
        self._work_queue = WorkQueue("controller")
        self._added_watches: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        for key, work in (
            ("brokers", self._process_brokers),
            ("deletions", self._process_deletions),
            ("watches", self._watch_topics),
            ("topics", self._process_topics),
            ("changed topics", self._process_changed_topics),
            ("settings", self._configs.process),
            ("access rules", self._security.acls.process),
            ("tokens", self._security.tokens.process),
            ("notifications", self._process_notifications),
            ("sweep", self._sweep),
        ):
            self._work_queue.add_handler(key, work)

    def add(self, path: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` on the active controller after its election and whenever the node at `path` changes."""
        self._added_watches.append((path, work))
        self._work_queue.add_handler(path, work)

    def start(self) -> None:
        children = {
            tree.BROKER_IDS: "brokers",
            tree.DELETE_TOPICS: "deletions",
            tree.CONFIG_CHANGES: "settings",
            **dict.fromkeys(acl_nodes.CHANGE_NOTIFICATIONS, "access rules"),
            token_nodes.CHANGE_NOTIFICATIONS: "tokens",
            ISR_NOTIFICATIONS: "notifications",
            LOG_DIR_NOTIFICATIONS: "notifications",
        }
        self._configs.reset()
        self._security.reset()
        for path, key in children.items():
            self._end_watches.append(self._store.watch_children(path, self._enqueue_callback(key)))
            self._work_queue.enqueue(key)
        self._end_watches.append(self._store.watch_children(tree.BROKER_TOPICS, lambda _: self._enqueue_topics()))
        self._enqueue_topics()
        for path, _ in self._added_watches:
            self._end_watches.append(self._store.watch_node(path, self._enqueue_callback(path)))
            self._work_queue.enqueue(path)
        self._work_queue.start()
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._enqueue_sweep)

    def stop(self) -> None:
        self._work_queue.stop()
        for timer in (self._sweeping, self._listing):
            if timer is not None:
                timer.cancel()
        self._sweeping = self._listing = None
        for end in (*self._end_watches, *self._end_topic_watches.values()):
            end()
        self._end_watches.clear()
        self._end_topic_watches.clear()
        self._changed_topics.clear()
        self._watched = None

    def enqueue(self, key: str) -> None:
        self._work_queue.enqueue(key)

    async def _watch_topics(self) -> None:
        """Create a watch for each new topic, and end those of deleted topics."""
        image, before = self._controller.image, self._watched
        damaged = damaged_topics(image)
        changed = image.topics if before is None else image.changed_topics_since(before) | damaged_topics(before)
        names = [*changed, *damaged]
        for start in range(0, len(names), WATCHES_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            for name in names[start : start + WATCHES_PER_SLICE]:
                self._watch_topic(name, is_there=name in image.topics or name in damaged)
        self._watched = image
        if self._changed_topics:
            self._work_queue.enqueue("changed topics")

    def _watch_topic(self, name: str, *, is_there: bool) -> None:
        if is_there and name not in self._end_topic_watches:
            self._end_topic_watches[name] = self._store.watch_node(
                tree.topic_path(name), self._enqueue_topic_callback(name)
            )
            self._changed_topics.add(name)  # read after the watch is set, so no change is missed
        elif not is_there and name in self._end_topic_watches:
            self._end_topic_watches.pop(name)()

    def _enqueue_topics(self) -> None:
        self._work_queue.enqueue("watches")
        self._work_queue.enqueue("topics")

    def _enqueue_callback(self, key: str) -> Callable[[object], None]:
        return lambda _: self._work_queue.enqueue(key)

    def _enqueue_topic_callback(self, name: str) -> Callable[[object], None]:
        def enqueue(_: object) -> None:
            self._changed_topics.add(name)
            self._work_queue.enqueue("changed topics")

        return enqueue

    # ---- brokers

    async def _process_brokers(self) -> None:
        await self._controller.reconcile_brokers(self.read_brokers)

    async def read_brokers(self) -> RegisteredBrokers:
        """Read the registered brokers; unchanged registrations, possibly a thousand, are not decoded again."""
        nodes = await self._store.subtree(tree.BROKER_IDS)
        before = self._registrations
        same = {path: before[path] for path, node in nodes.items() if path in before and before[path][0] == node}
        reader = NodeReader(self._controller.image)
        new = load_brokers({path: node for path, node in nodes.items() if path not in same}, reader)
        read = {
            path: (nodes[path], broker)
            for broker in new.values()
            if (path := tree.broker_path(broker.id)) not in reader.damaged
        }
        self._registrations = same | read
        brokers = {broker.id: broker for _, broker in same.values()} | new
        return RegisteredBrokers(dict(sorted(brokers.items())), frozenset(reader.damaged))

    # ---- topics

    async def _process_topics(self) -> None:
        """Find topics that other tools have created or deleted.

        The watch does not report which, so all names are compared; with many topics this is slow and done less often.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._listing is not None:
            self._listing.cancel()
        if began < self._listing_from:
            self._listing = loop.call_at(self._listing_from, self._work_queue.enqueue, "topics")
            return
        names = await self._store.children(tree.BROKER_TOPICS)
        image = self._controller.image
        if len(names) > INLINE_NAMES_MAX:
            unlike = await asyncio.to_thread(differing_names, names, image)
            self._listing_from = loop.time() + (loop.time() - began) / LISTING_TIME_SHARE
        else:
            unlike = differing_names(names, image)
        if unlike:
            await self._read_topics(unlike)
        self._work_queue.enqueue("watches")

    async def _process_changed_topics(self) -> None:
        """Process some of the changed topics at a time: after an election these are all topics."""
        names = set(islice(self._changed_topics, TOPICS_PER_ROUND))
        self._changed_topics -= names
        try:
            nodes = await asyncio.gather(*(self._store.get(tree.topic_path(name)) for name in names))
            topics = self._controller.image.topics
            data = {name: node.data if node is not None else None for name, node in zip(names, nodes, strict=True)}
            await self._read_topics(
                name for name in names if not external_changes.is_unchanged(topics.get(name), data[name])
            )
        except Exception:
            self._changed_topics |= names  # they are processed again
            raise
        if self._changed_topics:
            self._work_queue.enqueue("changed topics")

    async def _read_topics(self, names: Iterable[str]) -> None:
        """Load topics from the store, then elect their leaders."""
        wanted = sorted(names)
        if not wanted:
            return

        async def read() -> dict[str, Node]:
            nodes: dict[str, Node] = {}
            for name in wanted:
                nodes.update(await self._store.subtree(tree.topic_path(name)))
                config = await self._store.get(tree.config_path(tree.TOPIC_CONFIG, name))
                if config is not None:
                    nodes[tree.config_path(tree.TOPIC_CONFIG, name)] = config
            return nodes

        reply = await self._controller.change_after_reading(
            read, lambda image, nodes: external_changes.decide_external_topics(image, wanted, nodes, self._new_ids)
        )
        if reply.changed or reply.gone:
            logger.info(
                "[Controller] topics that were changed in the store by another tool: %s; deleted: %s",
                ",".join(reply.changed) or "none",
                ",".join(reply.gone) or "none",
            )
            if reply.gone:
                self._work_queue.enqueue("deletions")  # a remaining mark would delete the next topic with that name
            await self._controller.reconcile_leaders(reply.changed)

    def _enqueue_sweep(self) -> None:
        self._work_queue.enqueue("sweep")
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._enqueue_sweep)

    async def _sweep(self) -> None:
        """Compare some topics with the store, because partition states that other tools change have no watches.

        Topics with damaged nodes are compared every time, so that a restored node is found soon.
        """
        image = self._controller.image
        if not self._to_sweep:
            self._to_sweep = list(image.topics)
        differing = [name for name in damaged_topics(image, is_whole=False) if await self._differs(name)]
        partitions = 0
        while self._to_sweep and partitions < SWEEP_PARTITIONS:
            name = self._to_sweep.pop()
            partitions += image.count_partitions([name])
            if name in image.topics and await self._differs(name):
                differing.append(name)
        await self._read_topics(set(differing))  # compares again: own changes in the meantime are not differences
        await self._recheck_damaged()

    async def _differs(self, name: str) -> bool:
        """Return whether a topic in the store differs from the image, or has other damaged nodes."""
        nodes = await self._store.subtree(tree.topic_path(name))
        image = self._controller.image
        reader = NodeReader(image)
        stored = load_topics(nodes, reader)
        known = external_changes.damaged_nodes(image, name)
        path = tree.config_path(tree.TOPIC_CONFIG, name)
        return stored.get(name) != image.topics.get(name) or set(reader.damaged) != {*known} - {path}

    async def _recheck_damaged(self) -> None:
        """Reload the store when another damaged node is readable again."""
        image = self._controller.image
        for path in [path for path in sorted(image.damaged) if not path.startswith(f"{tree.BROKER_TOPICS}/")]:
            if path.startswith(tree.BROKER_IDS):
                self._work_queue.enqueue("brokers")
                continue
            node = await self._store.get(path)
            if node is None or path not in load_image_leniently({path: node}, image).damaged:
                await self._controller.reload()
                self._work_queue.enqueue("watches")
                return

    async def _process_deletions(self) -> None:
        marked = await self._store.children(tree.DELETE_TOPICS)
        if not marked:
            self._logged_marks = ()
            return
        is_enabled = self._is_deletion_enabled()
        reply = await self._controller.change(
            lambda image: external_changes.decide_marked_deletions(image, marked, is_enabled=is_enabled), is_urgent=True
        )
        if reply.deleted:
            logger.info("[Controller] deleted topics that were marked for deletion: %s", ",".join(reply.deleted))
        if reply.kept and reply.kept != self._logged_marks:
            logger.warning(
                "[Controller] topics that are marked for deletion, but kept because delete.topic.enable=false: %s. "
                "The next controller with delete.topic.enable=true deletes them",
                ",".join(reply.kept),
            )
        self._logged_marks = reply.kept

    # ---- settings

    async def _update_configs(self, changed: set[tuple[str, str]]) -> None:
        entities = external_changes.with_parents(sorted(changed))

        async def read() -> dict[str, Node]:
            paths = [external_changes.node_path(entity_type, entity) for entity_type, entity in entities]
            nodes = {path: await self._store.get(path) for path in paths}
            return {path: node for path, node in nodes.items() if node is not None}

        await self._controller.change_after_reading(
            read, lambda image, nodes: external_changes.decide_external_configs(image, entities, nodes)
        )
        await self._controller.reconcile_leaders()  # defaults of brokers may affect leaders

    # ---- notifications of older brokers

    async def _process_notifications(self) -> None:
        paths = [f"{ISR_NOTIFICATIONS}/{name}" for name in await self._store.children(ISR_NOTIFICATIONS)]
        topics: set[str] = set()
        for path in paths:
            node = await self._store.get(path)
            topics |= external_changes.decode_notified_topics(node.data) if node is not None else set()
        await self._read_topics(name for name in topics if name in self._controller.image.topics)
        paths += [f"{LOG_DIR_NOTIFICATIONS}/{name}" for name in await self._store.children(LOG_DIR_NOTIFICATIONS)]
        await self._delete(paths)

    async def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                await self._store.multi([DeleteNode(path)])
            except TransactionRefusedError:
                continue  # another broker was faster


def differing_names(names: Iterable[str], image: MetadataImage) -> set[str]:
    """Return the topics that exist only in the store or only in the image."""
    known, listed = damaged_topics(image), set(names)
    gone = {name for name in (*image.topics, *known) if name not in listed}
    return gone | {name for name in listed if name not in image.topics and name not in known}


def damaged_topics(image: MetadataImage, *, is_whole: bool = True) -> set[str]:
    """Return the topics with a damaged topic node; without `is_whole`, with any damaged node except settings."""
    prefix = f"{tree.BROKER_TOPICS}/"
    names = [path.removeprefix(prefix) for path in image.damaged if path.startswith(prefix)]
    return {name.partition("/")[0] for name in names if not is_whole or "/" not in name}
