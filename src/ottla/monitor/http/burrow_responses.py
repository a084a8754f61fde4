"""Responses in the format of Burrow's HTTP API. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.names import TopicPartition
from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings
from ottla.monitor.lag_evaluation import Commit, GroupVerdict, PartitionVerdict, Status
from ottla.monitor.offset_store import OffsetStore, Owner

Fields = dict[str, Any]
CLIENT_ID = "ottla-monitor"
MODULE = "default"  # Burrow's name for the only storage, evaluator and consumer of a cluster


def group_status(verdict: GroupVerdict, *, with_all: bool) -> Fields:
    """`with_all` includes partitions with status OK."""
    shown = [item for item in verdict.partitions if with_all or item.status > Status.OK]
    return {
        "cluster": verdict.cluster,
        "group": verdict.group,
        "status": verdict.status.name,
        "complete": verdict.complete,
        "partitions": [partition_status(item) for item in shown],
        "partition_count": verdict.partition_count,
        "maxlag": partition_status(verdict.maxlag) if verdict.maxlag is not None else None,
        "totallag": verdict.totallag,
        "ottla_status": verdict.ottla_status.name,
    }


def unknown_group_status(cluster: str, group: str) -> Fields:
    return {
        "cluster": cluster,
        "group": group,
        "status": Status.NOTFOUND.name,
        "complete": 1.0,
        "partitions": [],
        "partition_count": 0,
        "maxlag": None,
        "totallag": 0,
        "ottla_status": Status.NOTFOUND.name,
    }


def partition_status(verdict: PartitionVerdict) -> Fields:
    return {
        "topic": verdict.topic,
        "partition": verdict.partition,
        "owner": verdict.owner,
        "client_id": verdict.client_id,
        "status": verdict.status.name,
        "ottla_status": verdict.ottla_status.name,
        "start": commit(verdict.start),
        "end": commit(verdict.end),
        "current_lag": verdict.current_lag,
        "complete": verdict.complete,
    }


def commit(kept: Commit | None) -> Fields | None:
    if kept is None:
        return None
    return {
        "offset": kept.offset,
        "timestamp": kept.timestamp_ms,
        "observedAt": kept.observed_ms,
        "lag": kept.lag,
    }


def partition_detail(store: OffsetStore, group: str, partition: TopicPartition, owner: Owner) -> Fields:
    """The commits of one partition, padded in front as in Burrow's ring."""
    found: Fields = {"offsets": [], "owner": owner.host, "client_id": owner.client_id, "current-lag": 0}
    ring = store.ring(group, partition)
    if ring is not None:
        nothing = [None] * (store.limits.intervals - len(ring.commits))
        found["offsets"] = [*nothing, *(commit(kept) for kept in ring.commits)]
        found["current-lag"] = max(0, store.ends[partition].end - ring.commits[-1].offset)
    return found


def cluster_module(settings: ClusterSettings) -> Fields:
    """Without secrets: only the login mechanism."""
    properties = settings.properties
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    is_tls = "SSL" in properties.get("security.protocol", "").upper()
    return {
        "class-name": "kafka",
        "servers": settings.bootstrap.split(","),
        "client-profile": {
            "name": MODULE,
            "client-id": properties.get("client.id", CLIENT_ID),
            "kafka-version": "",
            "tls": {"name": MODULE, "noverify": False, "certfile": "", "keyfile": "", "cafile": ""} if is_tls else None,
            "sasl": {"name": mechanism, "handshake-first": True, "username": ""} if mechanism else None,
        },
        "topic-refresh": settings.topic_refresh_ms // 1000,
        "offset-refresh": settings.offset_refresh_ms // 1000,
    }


def storage_module(settings: ClusterSettings) -> Fields:
    return {
        "class-name": "inmemory",
        "intervals": settings.limits.intervals,
        "min-distance": settings.limits.min_distance_ms // 1000,
        "group-allowlist": _text(settings.groups.allow),
        "group-denylist": _text(settings.groups.deny),
        "expire-group": settings.limits.expire_group_ms // 1000,
    }


def consumer_module(settings: ClusterSettings) -> Fields:
    cluster = cluster_module(settings)
    return {
        "class-name": "kafka",
        "cluster": settings.name,
        "servers": cluster["servers"],
        "group-allowlist": _text(settings.groups.allow),
        "group-denylist": _text(settings.groups.deny),
        "zookeeper-path": "",
        "zookeeper-timeout": 0,
        "client-profile": cluster["client-profile"],
        "offsets-topic": "__consumer_offsets",
        "start-latest": False,
    }


def modules(kind: str, clusters: Mapping[str, ClusterMonitor]) -> dict[str, Fields] | None:
    """The configured modules of one kind by name; None if there is no such kind."""
    settings = {name: monitor.settings for name, monitor in clusters.items()}
    first = next(iter(settings.values()), None)
    if kind == "cluster":
        return {name: cluster_module(item) for name, item in settings.items()}
    if kind == "consumer":
        return {name: consumer_module(item) for name, item in settings.items()}
    if kind == "storage":
        return {MODULE: storage_module(first)} if first is not None else {}
    if kind == "evaluator":
        return {MODULE: {"class-name": "caching", "expire-cache": 0}}
    return {} if kind == "notifier" else None


def _text(pattern: Any) -> str:
    return pattern.pattern if pattern is not None else ""
