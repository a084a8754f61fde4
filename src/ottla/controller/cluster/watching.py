"""What the active controller watches in the store of a cluster: brokers, topics, settings, marks, notifications.

Watches only say where to look; what is done about it is decided by external_changes.py and leader_election.py. What
the controller itself has written fires the same watches: it looks, finds what it knows, and nothing follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from ottla.base.clock import Clock
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.chores import Chores
from ottla.controller.cluster.controller import ClusterController, Registrations
from ottla.controller.cluster.security_watching import SecurityWatching
from ottla.controller.decisions import external_changes
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.loading import Reader, load_brokers, load_readable, load_topics
from ottla.controller.stores.store import (
    DeleteNode,
    Node,
    SessionStore,
    StoreOperation,
    TransactionRefusedError,
)

logger = logging.getLogger(__name__)

ISR_NOTIFICATIONS: Final = "/isr_change_notification"
LOG_DIR_NOTIFICATIONS: Final = "/log_dir_event_notification"
CHANGED_AT_ONCE: Final = 200  # topics: more would keep the loop too long
WATCHED_AT_ONCE: Final = 100
LISTED_AT_ONCE: Final = 1_000  # names of topics: to compare more is for a worker, and not to be done all the time
LISTING_SHARE: Final = 0.05  # of the time: so much may go into that
SWEEP_SECONDS: Final = 5.0
SWEEP_PARTITIONS: Final = 500  # in one sweep; a larger topic is swept alone
CONFIG_CHANGE_KEPT_MS: Final = 15 * 60 * 1000  # as Kafka: long enough for every broker to have read it


class ControllerWatches:
    """At work between start() and stop(), which is while this broker is the controller."""

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
        self._ends: list[Callable[[], None]] = []
        self._topic_ends: dict[str, Callable[[], None]] = {}
        self._changed_topics: set[str] = set()
        self._seen_changes: dict[str, int] = {}  # notifications of changed settings, and when they were seen
        self._security = SecurityWatching(store, controller, clock, self._delete)
        self._kept_marks: tuple[str, ...] = ()  # of which the log has told
        self._watched: MetadataImage | None = None  # each of its topics has a watch
        self._listing_from = 0.0  # the names of all topics are not looked at before that time
        self._listing: asyncio.TimerHandle | None = None
        self._to_sweep: list[str] = []
        self._registrations: dict[str, tuple[Node, BrokerImage]] = {}  # as they were read last
        self._sweeping: asyncio.TimerHandle | None = None
        self._chores = Chores("controller")
        self._more: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        for key, work in (
            ("brokers", self._look_at_brokers),
            ("deletions", self._look_at_deletions),
            ("watches", self._watch_topics),
            ("topics", self._look_at_topics),
            ("changed topics", self._look_at_changed_topics),
            ("settings", self._look_at_settings),
            ("access rules", self._security.acls.look),
            ("tokens", self._security.tokens.look),
            ("notifications", self._look_at_notifications),
            ("sweep", self._sweep),
        ):
            self._chores.add(key, work)

    def add(self, path: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` on the active controller after its election and whenever the node at `path` changes."""
        self._more.append((path, work))
        self._chores.add(path, work)

    def start(self) -> None:
        children = {
            tree.BROKER_IDS: "brokers",
            tree.DELETE_TOPICS: "deletions",
            tree.CONFIG_CHANGES: "settings",
            **dict.fromkeys(acl_nodes.CHANGES, "access rules"),
            token_nodes.CHANGES: "tokens",
            ISR_NOTIFICATIONS: "notifications",
            LOG_DIR_NOTIFICATIONS: "notifications",
        }
        self._seen_changes.clear()
        self._security.begin()
        for path, key in children.items():
            self._ends.append(self._store.watch_children(path, self._wanting(key)))
            self._chores.want(key)
        self._ends.append(self._store.watch_children(tree.BROKER_TOPICS, lambda _: self._want_topics()))
        self._want_topics()
        for path, _ in self._more:
            self._ends.append(self._store.watch_node(path, self._wanting(path)))
            self._chores.want(path)
        self._chores.start()
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._want_sweep)

    def stop(self) -> None:
        self._chores.stop()
        for timer in (self._sweeping, self._listing):
            if timer is not None:
                timer.cancel()
        self._sweeping = self._listing = None
        for end in (*self._ends, *self._topic_ends.values()):
            end()
        self._ends.clear()
        self._topic_ends.clear()
        self._changed_topics.clear()
        self._watched = None

    def want(self, key: str) -> None:
        self._chores.want(key)

    async def _watch_topics(self) -> None:
        """A watch for each topic; those of topics that are gone end. Only new and changed ones are looked at."""
        image, before = self._controller.image, self._watched
        damaged = damaged_topics(image)
        changed = image.topics if before is None else image.changed_topics_since(before) | damaged_topics(before)
        names = [*changed, *damaged]
        for start in range(0, len(names), WATCHED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            for name in names[start : start + WATCHED_AT_ONCE]:
                self._watch_topic(name, is_there=name in image.topics or name in damaged)
        self._watched = image
        if self._changed_topics:
            self._chores.want("changed topics")

    def _watch_topic(self, name: str, *, is_there: bool) -> None:
        if is_there and name not in self._topic_ends:
            self._topic_ends[name] = self._store.watch_node(tree.topic_path(name), self._wanting_topic(name))
            self._changed_topics.add(name)  # whoever looks after asking for a watch misses nothing
        elif not is_there and name in self._topic_ends:
            self._topic_ends.pop(name)()

    def _want_topics(self) -> None:
        self._chores.want("watches")
        self._chores.want("topics")

    def _wanting(self, key: str) -> Callable[[object], None]:
        return lambda _: self._chores.want(key)

    def _wanting_topic(self, name: str) -> Callable[[object], None]:
        def want(_: object) -> None:
            self._changed_topics.add(name)
            self._chores.want("changed topics")

        return want

    # ---- brokers

    async def _look_at_brokers(self) -> None:
        await self._controller.take_brokers(self.read_brokers)

    async def read_brokers(self) -> Registrations:
        """Registrations that are as before are not read again: there may be a thousand."""
        nodes = await self._store.subtree(tree.BROKER_IDS)
        before = self._registrations
        same = {path: before[path] for path, node in nodes.items() if path in before and before[path][0] == node}
        reader = Reader(self._controller.image)
        new = load_brokers({path: node for path, node in nodes.items() if path not in same}, reader)
        read = {
            path: (nodes[path], broker)
            for broker in new.values()
            if (path := tree.broker_path(broker.id)) not in reader.damaged
        }
        self._registrations = same | read
        brokers = {broker.id: broker for _, broker in same.values()} | new
        return Registrations(dict(sorted(brokers.items())), frozenset(reader.damaged))

    # ---- topics

    async def _look_at_topics(self) -> None:
        """Whether somebody else has made or deleted any. Nobody tells which, so all names are compared: this takes long
        where there are many, and is done the less often.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._listing is not None:
            self._listing.cancel()
        if began < self._listing_from:
            self._listing = loop.call_at(self._listing_from, self._chores.want, "topics")
            return
        names = await self._store.children(tree.BROKER_TOPICS)
        image = self._controller.image
        if len(names) > LISTED_AT_ONCE:
            unlike = await asyncio.to_thread(unlike_names, names, image)
            self._listing_from = loop.time() + (loop.time() - began) / LISTING_SHARE
        else:
            unlike = unlike_names(names, image)
        if unlike:
            await self._read_topics(unlike)
        self._chores.want("watches")

    async def _look_at_changed_topics(self) -> None:
        """Some at a time: after an election these are all topics."""
        names = set(islice(self._changed_topics, CHANGED_AT_ONCE))
        self._changed_topics -= names
        try:
            nodes = await asyncio.gather(*(self._store.get(tree.topic_path(name)) for name in names))
            topics = self._controller.image.topics
            data = {name: node.data if node is not None else None for name, node in zip(names, nodes, strict=True)}
            await self._read_topics(
                name for name in names if not external_changes.is_as_known(topics.get(name), data[name])
            )
        except Exception:
            self._changed_topics |= names  # they are looked at again
            raise
        if self._changed_topics:
            self._chores.want("changed topics")

    async def _read_topics(self, names: Iterable[str]) -> None:
        """Take topics as they are in the store, then make sure that somebody leads them."""
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
                "[Controller] topics that were changed in the store by somebody else: %s; that are gone: %s",
                ",".join(reply.changed) or "none",
                ",".join(reply.gone) or "none",
            )
            if reply.gone:
                self._chores.want("deletions")  # a mark must not wait for the next topic of that name
            await self._controller.settle(reply.changed)

    def _want_sweep(self) -> None:
        self._chores.want("sweep")
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._want_sweep)

    async def _sweep(self) -> None:
        """Compare a few topics with the store, others next time: no watch tells of states that others meddle with.

        Those with damaged nodes are compared every time: whoever restores one shall not wait.
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
        await self._read_topics(set(differing))  # what we were changing meanwhile is no difference by now
        await self._look_at_damage()

    async def _differs(self, name: str) -> bool:
        """Whether a topic is in the store as the controller knows it, damage included."""
        nodes = await self._store.subtree(tree.topic_path(name))
        image = self._controller.image
        reader = Reader(image)
        stored = load_topics(nodes, reader)
        known = external_changes.damaged_of(image, name)
        path = tree.config_path(tree.TOPIC_CONFIG, name)
        return stored.get(name) != image.topics.get(name) or set(reader.damaged) != {*known} - {path}

    async def _look_at_damage(self) -> None:
        """Other nodes that could not be read: whoever has restored one of them wants it to count."""
        image = self._controller.image
        for path in [path for path in sorted(image.damaged) if not path.startswith(f"{tree.BROKER_TOPICS}/")]:
            if path.startswith(tree.BROKER_IDS):
                self._chores.want("brokers")
                continue
            node = await self._store.get(path)
            if node is None or path not in load_readable({path: node}, image).damaged:
                await self._controller.reload()
                self._chores.want("watches")
                return

    async def _look_at_deletions(self) -> None:
        marked = await self._store.children(tree.DELETE_TOPICS)
        if not marked:
            self._kept_marks = ()
            return
        is_enabled = self._is_deletion_enabled()
        reply = await self._controller.change(
            lambda image: external_changes.decide_marked_deletions(image, marked, is_enabled=is_enabled), is_urgent=True
        )
        if reply.deleted:
            logger.info("[Controller] deleted topics that were marked for it: %s", ",".join(reply.deleted))
        if reply.kept and reply.kept != self._kept_marks:
            logger.warning(
                "[Controller] topics that are marked for deletion, and kept because delete.topic.enable=false: %s. "
                "The first controller that deletes topics will delete them",
                ",".join(reply.kept),
            )
        self._kept_marks = reply.kept

    # ---- settings

    async def _look_at_settings(self) -> None:
        names = await self._store.children(tree.CONFIG_CHANGES)
        new = [name for name in names if name not in self._seen_changes]
        now_ms = self._clock.monotonic_ms()
        nodes = [await self._store.get(f"{tree.CONFIG_CHANGES}/{name}") for name in new]
        entities = [
            entity for node in nodes if node is not None and (entity := external_changes.changed_entity(node.data))
        ]
        if entities:
            await self._read_configs(external_changes.with_parents(entities))
        self._seen_changes.update(dict.fromkeys(new, now_ms))
        await self._purge_changes(names, now_ms)

    async def _read_configs(self, entities: list[tuple[str, str]]) -> None:
        async def read() -> dict[str, Node]:
            paths = [external_changes.node_path(entity_type, entity) for entity_type, entity in entities]
            nodes = {path: await self._store.get(path) for path in paths}
            return {path: node for path, node in nodes.items() if node is not None}

        await self._controller.change_after_reading(
            read, lambda image, nodes: external_changes.decide_external_configs(image, entities, nodes)
        )
        await self._controller.settle()  # a broker's default may decide about leaders

    async def _purge_changes(self, names: Iterable[str], now_ms: int) -> None:
        listed = set(names)
        old = [name for name, seen_ms in self._seen_changes.items() if now_ms - seen_ms > CONFIG_CHANGE_KEPT_MS]
        await self._delete([f"{tree.CONFIG_CHANGES}/{name}" for name in old if name in listed])
        for name in old:
            del self._seen_changes[name]

    # ---- notifications of brokers of older times

    async def _look_at_notifications(self) -> None:
        paths = [f"{ISR_NOTIFICATIONS}/{name}" for name in await self._store.children(ISR_NOTIFICATIONS)]
        topics: set[str] = set()
        for path in paths:
            node = await self._store.get(path)
            topics |= external_changes.notified_topics(node.data) if node is not None else set()
        await self._read_topics(name for name in topics if name in self._controller.image.topics)
        paths += [f"{LOG_DIR_NOTIFICATIONS}/{name}" for name in await self._store.children(LOG_DIR_NOTIFICATIONS)]
        await self._delete(paths)

    async def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            operations: list[StoreOperation] = [DeleteNode(path)]
            try:
                await self._store.multi(operations)
            except TransactionRefusedError:
                continue  # somebody else was quicker


def unlike_names(names: Iterable[str], image: MetadataImage) -> set[str]:
    """Topics that the store has and the image has not, or the other way round."""
    known, listed = damaged_topics(image), set(names)
    gone = {name for name in (*image.topics, *known) if name not in listed}
    return gone | {name for name in listed if name not in image.topics and name not in known}


def damaged_topics(image: MetadataImage, *, is_whole: bool = True) -> set[str]:
    """Topics whose own node cannot be read; or any of their nodes, the settings left aside."""
    prefix = f"{tree.BROKER_TOPICS}/"
    names = [path.removeprefix(prefix) for path in image.damaged if path.startswith(prefix)]
    return {name.partition("/")[0] for name in names if not is_whole or "/" not in name}
