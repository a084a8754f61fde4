"""Clients of coordinators in a cluster: find the coordinator, and run transactions of version 2 through failovers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from tests.conformance.peer import Peer
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.transaction_calls import Producer, TransactionCalls

from ottla.client.client import Client
from ottla.client.coordinators import KeyType, find_coordinators
from ottla.client.errors import ClientError
from ottla.testing.cluster import Cluster, ClusterBroker

PATIENCE_SECONDS = 30.0
# What passes: LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, COORDINATOR_*, NOT_ENOUGH_REPLICAS, CONCURRENT_*,
# UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND
PASSING = frozenset({3, 5, 6, 7, 14, 15, 16, 19, 20, 51})


def coordinator_of(cluster: Cluster, kind: KeyType, key: str) -> ClusterBroker:
    """The current coordinator of a group or a transactional id; waits until there is one."""

    def find() -> ClusterBroker | None:
        for broker in cluster.live_brokers:
            with contextlib.suppress(ClientError), Client(broker.bootstrap_servers, connect_retry_ms=0) as client:
                found = find_coordinators(client, kind, [key])[0]
                if not found.error_code and cluster.broker(found.node_id) in cluster.live_brokers:
                    return cluster.broker(found.node_id)
        return None

    return cluster.wait_for(find, f"a coordinator of {key}")


class VersionTwoProducer:
    """Transaction version 2, as Java's producer speaks it: brokers add partitions, each transaction has an epoch.

    Every request goes to the broker that should answer it now, and is repeated until it is answered.
    """

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id
        self._peers: dict[int, Peer] = {}
        self._who = Producer(-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._ask(self._coordinator, self._start)

    def run(self, places: dict[tuple[str, int], bytes], group: str, offset: int, *, is_commit: bool) -> None:
        """One value to each place, the group's offset in topic `in`, and the end."""
        self._sequences.clear()
        for place, value in places.items():
            self.produce(place, value)
        self.commit_offset(group, offset)
        self.end(is_commit=is_commit)

    def produce(self, place: tuple[str, int], value: bytes) -> None:
        topic, partition = place
        sequence = self._sequences.get(place, 0)

        def send(calls: TransactionCalls) -> int:
            return int(calls.produce(self._who, topic, sequence, [value], partition=partition).error_code)

        self._ask(lambda: self._cluster.leader_of(topic, partition), send)
        self._sequences[place] = sequence + 1

    def commit_offset(self, group: str, offset: int) -> None:
        self._ask(
            lambda: coordinator_of(self._cluster, KeyType.GROUP, group),
            lambda calls: calls.commit_offsets(self._who, group, {"in": {0: offset}})["in"][0],
        )

    def end(self, *, is_commit: bool) -> None:
        def finish(calls: TransactionCalls) -> int:
            answer = calls.end(self._who, commit=is_commit)
            if answer.error_code == 0:
                self._who = Producer(answer.producer_id, answer.producer_epoch)
            return int(answer.error_code)

        self._ask(self._coordinator, finish)

    def _start(self, calls: TransactionCalls) -> int:
        answer = calls.init()
        self._who = Producer(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _coordinator(self) -> ClusterBroker:
        return coordinator_of(self._cluster, KeyType.TRANSACTION, self.transactional_id)

    def _ask(self, whom: Callable[[], ClusterBroker], ask: Callable[[TransactionCalls], int]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (error := self._answer(whom(), ask)) in PASSING:
            assert time.monotonic() < deadline, error
            time.sleep(0.02)
        assert error == 0, error

    def _answer(self, broker: ClusterBroker, ask: Callable[[TransactionCalls], int]) -> int:
        try:
            peer = self._peers.get(broker.id)
            if peer is None:
                peer = self._peers[broker.id] = Peer(broker.bootstrap_servers)
            return ask(TransactionCalls(peer, self.transactional_id))
        except (ConnectionClosedError, OSError):
            self._forget(broker.id)
            return min(PASSING)

    def _forget(self, broker_id: int) -> None:
        peer: Any = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.connection.close()

    def close(self) -> None:
        for broker_id in list(self._peers):
            self._forget(broker_id)
