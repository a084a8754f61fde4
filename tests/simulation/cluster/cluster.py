"""The cluster: hosts with disks, a store, clients, and the hands that break and mend them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.clients import Producer, Reader
from tests.simulation.cluster.disk import Disk, MemoryLog
from tests.simulation.cluster.ensemble import StoreServer
from tests.simulation.cluster.ledger import Ledger, Place
from tests.simulation.cluster.network import STORE, Network
from tests.simulation.world import World

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import NEVER_MS, TopicSettings
from ottla.controller import tree
from ottla.controller.decisions.leader_eligibility import ElectionRules
from ottla.controller.decisions.topic_changes import TopicResult, create_operations
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.controller.image_loader import load_image
from ottla.replication.partition import Partition

TOPIC = "t"
MIN_ISR = 2


class Cluster:
    """Three or four brokers and one topic; broker 4, if there is one, is where replicas may move to."""

    def __init__(
        self, world: World, *, hosts: int = 3, partitions: int = 1, is_clean: bool = True, flushes: bool = False
    ) -> None:
        self.world = world
        self.network = Network(world)
        self.ledger = Ledger(world, is_clean=is_clean)
        self.ledger.is_current = lambda topic_id: topic_id in self.image().topics_by_id
        self.settings = TopicSettings(
            min_insync_replicas=MIN_ISR,
            unclean_leader_election_enable=not is_clean,
            flush_messages=1 if flushes else NEVER_MS,
        )
        self.rules = ElectionRules(MIN_ISR, not is_clean)
        self.fetch_bytes = world.random.choice((100, 400, 1_000))  # one batch at a time, or several
        self.clock_offsets_ms: dict[int, int] = {}
        self.hosts = tuple(range(1, hosts + 1))
        self.disks = {host: Disk() for host in self.hosts}
        self.server = StoreServer(world, self.network)
        self.network.processes[STORE] = self.server
        self.partition_count = partitions
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.damaged: dict[tuple[int, TopicPartition], int] = {}  # since which transaction a replica lacks records
        self.on_state_written: Callable[[list[str]], None] = lambda paths: None
        self._decoded: dict[bytes, Any] = {}
        self.server.on_change = self.on_store_change
        self.is_creating = False  # the topic, because it was deleted
        self.resting: frozenset[int] = frozenset()  # brokers in maintenance, by the settings
        self.is_in_trouble = True  # until all is mended
        self._create_topic()
        for host in self.hosts:
            self.start(host)

    def _create_topic(self) -> None:
        """Before any broker is there; later topics are created by the controller."""
        replicas = (1, 2, 3)
        rows = []
        for index in range(self.partition_count):
            row = replicas[index % 3 :] + replicas[: index % 3]
            rows.append(PartitionImage(row[0], 0, row, row))
        topic = TopicImage(TOPIC, UUID(int=1), tuple(rows))
        image = MetadataImage()
        session = self.server.store.open_session(self.world.now_ms)
        result = TopicResult(TOPIC, topic=topic, configs={}, topic_id=topic.topic_id)
        self.server.store.multi(session, tuple(create_operations(image, result)))
        self.server.store.close_session(session)

    # ---- brokers

    def broker(self, host: int) -> Broker | None:
        process = self.network.processes.get(host)
        return process if isinstance(process, Broker) and process.is_alive else None

    def brokers(self) -> list[Broker]:
        return [broker for host in self.hosts if (broker := self.broker(host)) is not None]

    def start(self, host: int) -> None:
        if self.broker(host) is None:
            self.world.tell(f"broker {host} starts")
            self.network.dark.discard(host)
            self.network.processes[host] = Broker(self, host, self.disks[host])

    def kill(self, host: int, *, with_power: bool = False) -> None:
        """kill -9 keeps what the kernel has; without power that is gone, too, and no connection is reset."""
        broker = self.broker(host)
        if broker is None:
            return
        broker.die()
        if with_power:
            self.network.dark.add(host)
            self._damage(host)
            lost = self.disks[host].lose_power()
            self.world.tell(f"broker {host} loses its power, and {lost} records")
            return
        self.world.tell(f"broker {host} is killed")
        self.network.reset(host)
        for other in self.brokers():
            if other.controlling is not None:
                self.network.send(host, other.host, lambda other=other: other.take(lambda: self._reset(other, host)))  # type: ignore[misc]

    def _reset(self, controller: Broker, host: int) -> None:
        if controller.controlling is not None:
            controller.controlling.on_reset(host)

    def wipe(self, host: int) -> None:
        self.world.tell(f"the disk of {host} is emptied")
        self._damage(host)
        self.disks[host].wipe()

    def pause(self, host: int) -> None:
        broker = self.broker(host)
        if broker is not None and not broker.is_paused:
            self.world.tell(f"broker {host} stops")
            broker.pause()

    def resume(self, host: int) -> None:
        broker = self.broker(host)
        if broker is not None and broker.is_paused:
            self.world.tell(f"broker {host} goes on")
            broker.resume()

    # ---- what is true

    def image(self) -> MetadataImage:
        return load_image(self.server.store.subtree())

    def state(self, index: int = 0) -> PartitionImage | None:
        return self.image().partition(TOPIC, index)

    def leader(self, index: int = 0) -> int:
        state = self.state(index)
        return state.leader if state is not None else -1

    def controller(self) -> int:
        node = self.server.store.get(tree.CONTROLLER)
        return tree.decode_controller(node.data) if node is not None else -1

    def is_newest(self, partition: Partition) -> bool:
        """Whether the leader epoch that a broker has heard of is still the current one."""
        topic = self.image().topics.get(partition.name.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        return topic.partitions[partition.name.partition].leader_epoch == partition.leader_epoch

    def check_commit(self, partition: Partition) -> None:
        """What a leader commits is on every replica that could be elected: on all that the store has in sync."""
        state = self._stored_state(partition)
        if state is None or state.leader_epoch != partition.leader_epoch:
            return
        start = memory(partition.log).bytes.find(partition.high_watermark)[0]
        committed = memory(partition.log).bytes.data[max(0, start - 300) : start]
        for host in state.isr:
            log = self.disks[host].logs.get(partition.name)
            is_there = log is not None and log.bytes.data[max(0, start - 300) : start] == committed
            if not is_there and (host, partition.name) not in self.damaged:
                self.ledger.break_(f"D: {partition!r} of {partition.node_id} is ahead of {host} in ISR {state.isr}")

    def _stored_state(self, partition: Partition) -> tree.PartitionState | None:
        topic, index = partition.name
        node = self.server.store.get(tree.topic_path(topic))
        path = tree.partition_state_path(topic, index)
        stored = self.server.store.get(path)
        if node is None or stored is None:
            return None
        if node.data not in self._decoded:
            self._decoded[node.data] = tree.decode_topic(topic, node.data).topic_id
        if stored.data not in self._decoded:
            self._decoded[stored.data] = tree.decode_partition_state(path, stored.data)
        state = self._decoded[stored.data]
        return state if self._decoded[node.data] == partition.topic_id else None

    def _damage(self, host: int) -> None:
        """Until the controller knows of it, nothing can be expected of a replica."""
        names = (TopicPartition(TOPIC, index) for index in range(self.partition_count))
        self.damaged.update(((host, name), self.server.store.transactions) for name in names)

    def on_store_change(self, paths: list[str]) -> None:
        written = [path for path in paths if path.endswith("/state")]
        if written:
            self._check_writer(written)
            topic = self.image().topics.get(TOPIC)
            for index, state in enumerate(topic.partitions if topic is not None else ()):
                name = TopicPartition(TOPIC, index)
                if topic is not None and self.ledger.is_clean:
                    self._check_counted(Place(topic.topic_id, index), name, {*state.isr, *state.elr})
        self.on_state_written(paths)

    def _check_writer(self, paths: list[str]) -> None:
        """R6: a controller that is none any more changes nothing."""
        current = self.server.store.get(tree.CONTROLLER_EPOCH)
        for path in paths:
            node = self.server.store.get(path)
            if node is not None and current is not None:
                epoch = tree.decode_partition_state(path, node.data).controller_epoch
                if epoch < tree.decode_number(tree.CONTROLLER_EPOCH, current.data):
                    self.ledger.break_(
                        f"Z: a controller of epoch {epoch} writes {path}, but now it is {current.data!r}"
                    )

    def review_damage(self) -> None:
        """The controller has decided about the live brokers: a broker known to be back with an empty disk is not
        expected in the ISR; from now on it is an error if it is listed there without being in sync."""
        image = self.image() if self.damaged else MetadataImage()
        for (host, name), damaged_id in list(self.damaged.items()):
            state, node = image.partition(*name), self.server.store.get(tree.broker_path(host))
            terms = [broker.controlling for broker in self.brokers() if broker.controlling is not None]
            is_new_life = node is not None and node.created_id > damaged_id
            is_known = is_new_life and any(
                node.created_id < term.liveness.broker_epoch_bounds.get(host, 0) for term in terms
            )
            if is_known and (state is None or host not in (*state.isr, *state.elr)):
                del self.damaged[host, name]

    def _check_counted(self, place: Place, name: TopicPartition, counted: set[int]) -> None:
        """Who may be elected has everything that was ever committed."""
        known = self.ledger.committed.get(place)
        for host in sorted(counted) if known is not None and known.size else ():
            log = self.disks[host].logs.get(name)
            has_all = log is not None and log.topic_id == place.topic_id and log.bytes.data[: known.size] == known.data
            if not has_all and (host, name) not in self.damaged:
                self.ledger.break_(
                    f"D: {host} may lead {name}, but lacks what was committed: {self.state(name.partition)}"
                )

    def is_whole(self) -> bool:
        """Every replica is alive and in sync: one of them may be damaged without loss."""
        topic = self.image().topics.get(TOPIC)
        return topic is not None and all(
            set(state.isr) == set(state.replicas) and all(self.broker(host) for host in state.replicas)
            for state in topic.partitions
        )

    def unfinished(self) -> str | None:
        """What is not yet as it should be when all is well; None if nothing is."""
        topic = self.image().topics.get(TOPIC)
        if topic is None:
            return "there is no topic"
        for index, state in enumerate(topic.partitions):
            if state.leader < 0 or set(state.isr) != set(state.replicas) or state.adding_replicas:
                return f"partition {index} is {state}"
            leader = self._replica(state.leader, index)
            if leader is None or not leader.is_leader or leader.leader_epoch != state.leader_epoch:
                return f"partition {index} is {state}, but its leader {leader!r}"
            for host in state.replicas:
                replica = self._replica(host, index)
                if replica is None or replica.high_watermark != leader.log.end_offset:
                    return f"partition {index}: {replica!r} on {host} is not where {leader!r} is"
                if memory(replica.log).bytes.data != memory(leader.log).bytes.data:
                    self.ledger.break_(f"C: partition {index} is not the same on {host} and {state.leader}")
        return None

    def _replica(self, host: int, index: int) -> Partition | None:
        broker = self.broker(host)
        return broker.partitions.get(TopicPartition(TOPIC, index)) if broker is not None else None

    def check_logs(self) -> None:
        topic = self.image().topics[TOPIC]
        for index, state in enumerate(topic.partitions):
            replica = self._replica(state.leader, index)
            assert replica is not None
            self.ledger.check_log(Place(topic.topic_id, index), memory(replica.log))


def memory(log: object) -> MemoryLog:
    assert isinstance(log, MemoryLog)
    return log
