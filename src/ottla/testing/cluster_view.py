"""What a test's cluster is like now, as its brokers and ZooKeeper tell it, and waiting until it is otherwise."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.testing.child import BrokerError
from ottla.testing.cluster_broker import ClusterBroker
from ottla.testing.security import Security
from ottla.testing.zookeeper import ZooKeeperProcess

if TYPE_CHECKING:
    from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

WAIT_SECONDS_MAX = 90.0  # beside other work sessions are lost that should not be, and made anew
LOOK_SECONDS = 0.02
ASK_TIMEOUT_MS = 3_000

T = TypeVar("T")


class ClusterView:
    """Every wait has a deadline, and says what it has waited for."""

    def __init__(self, zookeeper: ZooKeeperProcess, security: Security | None = None) -> None:
        self.zookeeper = zookeeper
        self.security = security
        self._brokers: dict[int, ClusterBroker] = {}
        self._store: Any = None

    @property
    def brokers(self) -> list[ClusterBroker]:
        return list(self._brokers.values())

    @property
    def live_brokers(self) -> list[ClusterBroker]:
        """Those that run and are not paused."""
        return [broker for broker in self.brokers if broker.is_running and not broker.is_paused]

    def broker(self, broker_id: int) -> ClusterBroker:
        return self._brokers[broker_id]

    @property
    def client_properties(self) -> dict[str, str]:
        """How a client that may do everything connects, in Java's names; empty without security."""
        return {} if self.security is None else self.security.properties

    # ---- what it is like now

    def metadata(self, topic: str | None = None) -> dict[int, MetadataResponse]:
        """What each broker that answers tells about a topic, or about all."""
        from ottla.client.errors import ClientError  # noqa: PLC0415 (start-up)
        from ottla.client.opening import open_client  # noqa: PLC0415
        from ottla.protocol.messages.metadata import (  # noqa: PLC0415
            MetadataRequest,
            MetadataRequestTopic,
            MetadataResponse,
        )

        wanted = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answers = {}
        for broker in self.live_brokers:
            with (
                contextlib.suppress(ClientError),
                open_client(
                    broker.bootstrap_servers, self.client_properties, timeout_ms=ASK_TIMEOUT_MS, patience_ms=0
                ) as client,
            ):
                answers[broker.id] = client.call(request, MetadataResponse)
        return answers

    def partition(self, topic: str, number: int = 0) -> MetadataResponsePartition | None:
        """A partition as the best informed broker knows it; None if nobody does."""
        found = [
            partition
            for answer in self.metadata(topic).values()
            for told in answer.topics
            for partition in told.partitions
            if partition.partition_index == number
        ]
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    def leader_of(self, topic: str, partition: int = 0, seconds_max: float = WAIT_SECONDS_MAX) -> ClusterBroker:
        """The broker that leads a partition, as soon as there is one."""
        return self.wait_for_leader(topic, partition, seconds_max=seconds_max)

    def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: ClusterBroker | None = None,
        seconds_max: float = WAIT_SECONDS_MAX,
    ) -> ClusterBroker:
        def leader() -> ClusterBroker | None:
            found = self.partition(topic, partition)
            broker = None if found is None else self._brokers.get(found.leader_id)
            return None if broker is other_than else broker

        return self.wait_for(leader, f"a leader of {topic}-{partition}", seconds_max)

    def controller(
        self, *, other_than: ClusterBroker | None = None, seconds_max: float = WAIT_SECONDS_MAX
    ) -> ClusterBroker:
        """The active controller, as ZooKeeper knows it."""

        def active() -> ClusterBroker | None:
            broker = self._brokers.get(self.controller_id())
            return None if broker is other_than else broker

        return self.wait_for(active, "a controller", seconds_max)

    def controller_id(self) -> int:
        """What `/controller` holds; -1 if there is no such node."""
        data = self.read_node("/controller")
        return -1 if data is None else int(json.loads(data)["brokerid"])

    def read_node(self, path: str) -> bytes | None:
        """What ZooKeeper has at this path."""
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415

        try:
            return bytes(self.store.get(path)[0])
        except NoNodeError:
            return None

    @property
    def store(self) -> Any:
        """A kazoo client of the cluster's ZooKeeper, not through any door."""
        if self._store is None:
            from kazoo.client import KazooClient  # noqa: PLC0415 (start-up)

            self._store = KazooClient(hosts=self.zookeeper.connect, timeout=30)
            self._store.start(WAIT_SECONDS_MAX)
        return self._store

    def replica_folders(self, topic: str, partition: int) -> dict[int, Path]:
        """The folder of each replica of a partition, by broker id."""
        found = self.partition(topic, partition)
        folders = (
            {}
            if found is None
            else {each: self._brokers[each].partition_folder(topic, partition) for each in found.replica_nodes}
        )
        return {each: folder for each, folder in folders.items() if folder is not None}

    # ---- waiting

    def wait_for(self, look: Callable[[], T | None], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> T:
        """The first answer that is not false. Raises BrokerError at the deadline."""
        deadline = time.monotonic() + seconds_max
        while not (found := look()):
            if time.monotonic() > deadline:
                raise BrokerError(f"after {seconds_max:g} s there was still not {what}: {self.describe()}")
            time.sleep(LOOK_SECONDS)
        return found

    def wait_for_isr(
        self, topic: str, partition: int, isr: Iterable[int], seconds_max: float = WAIT_SECONDS_MAX
    ) -> None:
        """Until exactly these brokers are in sync."""
        wanted = sorted(isr)

        def is_so() -> bool:
            found = self.partition(topic, partition)
            return found is not None and sorted(found.isr_nodes) == wanted

        self.wait_for(is_so, f"an ISR {wanted} of {topic}-{partition}", seconds_max)

    def wait_until_whole(self, topics: Iterable[str] | None = None, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Until every broker says of every partition of these topics (or of all) that all its replicas are in sync."""
        wanted = None if topics is None else set(topics)

        def is_whole() -> bool:
            answers = self.metadata()
            return len(answers) == len(self.brokers) and all(
                len(answer.brokers) == len(self.brokers)
                and all(
                    partition.leader_id >= 0 and sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
                    for topic in answer.topics
                    if wanted is None or topic.name in wanted
                    for partition in topic.partitions
                )
                for answer in answers.values()
            )

        self.wait_for(is_whole, "a whole cluster", seconds_max)

    def describe(self) -> str:
        """Who lives and what they say about the partitions, for messages."""
        told = []
        for broker_id, answer in self.metadata().items():
            rows = [
                f"{topic.name}-{each.partition_index} leader={each.leader_id} epoch={each.leader_epoch} "
                f"isr={each.isr_nodes} replicas={each.replica_nodes}"
                for topic in answer.topics
                for each in topic.partitions
                if not topic.is_internal
            ]
            alive = [broker.node_id for broker in answer.brokers]
            told.append(f"broker {broker_id} knows brokers {alive}, controller {answer.controller_id}: {rows}")
        return "\n".join([repr(self), *told])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.brokers} {self.zookeeper!r}>"
