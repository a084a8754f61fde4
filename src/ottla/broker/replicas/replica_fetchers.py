"""Which fetcher copies which partition: `num.replica.fetchers` connections to each leader.

The partitions tell of their roles themselves (Partition.on_role); nothing else has to be called.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.replicas.replica_fetcher import ReplicaFetcher
from ottla.broker.replicas.replication_quota import ReplicationQuota, throttles
from ottla.controller.image import MetadataImage
from ottla.network.peer import Peer
from ottla.quotas.shares import Windows
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.controller.cluster.membership import Membership

logger = logging.getLogger(__name__)

FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"

OpenPeer = Callable[[int, str], Peer]
"""Makes a connection of one's own to a broker, for a purpose."""

Place = tuple[int, int]  # the leader, and which of the connections to it


class ReplicaFetchers:
    """All that this broker copies from others."""

    def __init__(self, node: Node, replicas: ReplicaSet, membership: Membership, open_peer: OpenPeer) -> None:
        self._node = node
        self._replicas = replicas
        self._membership = membership
        self._open_peer = open_peer
        self.node_id = node.id
        self.clock = node.clock
        self.fetchers: dict[Place, ReplicaFetcher] = {}
        self._places: dict[Partition, Place] = {}
        self._is_stopped = False
        settings = node.settings
        windows = Windows(settings.replication_quota_window_num, settings.replication_quota_window_size_seconds * 1000)
        self.quota = ReplicationQuota(
            node.clock,
            lambda: self.settings.follower_replication_throttled_rate,
            self._is_throttled_follower,
            windows,
        )
        self.leader_quota = ReplicationQuota(
            node.clock,
            lambda: self.settings.leader_replication_throttled_rate,
            self._is_throttled_leader,
            windows,
        )
        replicas.on_role = self.on_role
        node.images.on_image(self.on_image)
        node.live.on_change(lambda _: self._rearrange())
        for partition in list(replicas.partitions.values()):
            partition.on_role = self.on_role
            self.on_role(partition)

    # ---- what fetchers need

    @property
    def settings(self) -> BrokerSettings:
        return self._node.settings

    @property
    def broker_epoch(self) -> int:
        return self._membership.broker_epoch

    def open(self, leader_id: int, number: int) -> Peer:
        return self._open_peer(leader_id, f"fetcher-{number}")

    # ---- roles

    def on_role(self, partition: Partition) -> None:
        """A partition has a new role, or is gone."""
        place = self._place_of(partition)
        before = self._places.get(partition)
        if before is not None and before != place:
            del self._places[partition]
            fetcher = self.fetchers.get(before)
            if fetcher is not None:
                fetcher.forget(partition)
        if place is None or self._is_stopped:
            return
        self._places[partition] = place
        fetcher = self.fetchers.get(place)
        if fetcher is None:
            fetcher = self.fetchers[place] = ReplicaFetcher(self, *place)
        fetcher.follow(partition)

    def _place_of(self, partition: Partition) -> Place | None:
        leader = partition.leader_id
        if partition.is_deleted or leader < 0 or leader == self.node_id:
            return None
        return leader, zlib.crc32(str(partition.name).encode()) % self.settings.num_replica_fetchers

    def _rearrange(self) -> None:
        """The number of fetchers may have changed."""
        for partition, place in list(self._places.items()):
            if self._place_of(partition) != place:
                self.on_role(partition)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """A broker that is there, or there again, is asked at once."""
        if old.brokers is new.brokers:
            return
        for (leader_id, _), fetcher in self.fetchers.items():
            now, before = new.brokers.get(leader_id), old.brokers.get(leader_id)
            if now is not None and (before is None or before.epoch != now.epoch):
                fetcher.wake()

    async def stop(self) -> None:
        """Copy nothing more."""
        self._is_stopped = True
        self._replicas.on_role = None
        for fetcher in self.fetchers.values():
            fetcher.stop()
        await asyncio.sleep(0)

    # ---- the throttle

    def _is_throttled_follower(self, partition: Partition) -> bool:
        return self._is_throttled(partition, FOLLOWER_REPLICAS)

    def _is_throttled_leader(self, partition: Partition) -> bool:
        return self._is_throttled(partition, LEADER_REPLICAS)

    def _is_throttled(self, partition: Partition, setting: str) -> bool:
        topic, index = partition.name
        value = self._node.image.topic_configs.get(topic, {}).get(setting, "")
        return throttles(tuple(item.strip() for item in value.split(",")), index, self.node_id)

    @property
    def lag_max(self) -> int:
        return max((fetcher.plan.lag_max for fetcher in self.fetchers.values()), default=0)

    def __repr__(self) -> str:
        return f"<ReplicaFetchers {len(self._places)} partitions, {len(self.fetchers)} fetchers>"
