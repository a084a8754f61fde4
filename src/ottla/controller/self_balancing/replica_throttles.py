"""Replication throttles of the controller's own moves, with Kafka's settings: which to set, and which to remove. Pure.

Rules:
1. Only moving replicas are throttled: the new ones as followers, their possible sources as leaders. A broker gets a
   rate only if none is set.
2. Settings of operators are kept. A value that differs from the last written one belongs to an operator, and is not
changed.
3. The result depends only on the moves in progress and the current settings, and is idempotent. So the next controller
   removes the settings that a previous one has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.placement.throttled_replicas import (
    ALL,
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATE_KEYS,
    REPLICA_KEYS,
    throttled_entries,
)
from ottla.controller import tree
from ottla.controller.decisions.decision import config_operations
from ottla.controller.decisions.leader_eligibility import excluding
from ottla.controller.image import MetadataImage
from ottla.controller.self_balancing.journals import ReplicaMove, Throttle, WrittenThrottle
from ottla.controller.stores.store import StoreOperation


class ThrottleConfigs(NamedTuple):
    """The settings to change, and the controller's own part of all settings."""

    topics: Mapping[str, Mapping[str, str]]
    brokers: Mapping[str, Mapping[str, str]]
    throttle: Throttle


def throttle_configs(
    image: MetadataImage, before: Throttle, moves: Iterable[ReplicaMove], rate: int
) -> ThrottleConfigs:
    """Return the throttle settings for these moves."""
    words: dict[tuple[str, str], set[str]] = {}
    brokers: set[int] = set()
    for move in moves:
        partition = image.partition(*move.partition)
        if partition is None:
            continue
        sources = excluding(partition.replicas, (*move.removed, *move.added))
        for key, row in ((LEADER_REPLICAS, sources), (FOLLOWER_REPLICAS, move.added)):
            words.setdefault((move.partition.topic, key), set()).update(
                throttled_entries(move.partition.partition, row)
            )
        brokers.update((*sources, *move.added))  # including absent ones, which may return soon
    topics, replicas = topic_throttle_configs(image, before, words)
    configs, rates = broker_throttle_configs(image, before, brokers, str(rate))
    return ThrottleConfigs(topics, configs, Throttle(replicas, rates))


def topic_throttle_configs(
    image: MetadataImage, before: Throttle, words: Mapping[tuple[str, str], set[str]]
) -> tuple[dict[str, Mapping[str, str]], dict[tuple[str, str], WrittenThrottle]]:
    changed: dict[str, Mapping[str, str]] = {}
    written: dict[tuple[str, str], WrittenThrottle] = {}
    for topic in sorted({topic for topic, _ in (*before.replicas, *words)}):
        if topic not in image.topics:
            continue
        if tree.config_path(tree.TOPIC_CONFIG, topic) in image.damaged:
            written |= {place: own for place, own in before.replicas.items() if place[0] == topic}
            continue
        now = image.topic_configs.get(topic, {})
        config = dict(now)
        for key in REPLICA_KEYS:
            own = before.replicas.get((topic, key))
            others = set(filter(None, (word.strip() for word in now.get(key, "").split(","))))
            is_ours = own is not None and own.value == now.get(key)
            if own is not None and is_ours:
                others -= own.replicas
            needed = words.get((topic, key), set()) - others if ALL not in others else set()
            if needed:
                config[key] = ",".join(sorted(others | needed))
                written[topic, key] = WrittenThrottle(config[key], frozenset(needed))
            elif is_ours and others:
                config[key] = ",".join(sorted(others))
            elif is_ours:
                config.pop(key)
        if config != now:
            changed[topic] = config
    return changed, written


def broker_throttle_configs(
    image: MetadataImage, before: Throttle, brokers: set[int], rate: str
) -> tuple[dict[str, Mapping[str, str]], dict[tuple[int, str], str]]:
    changed: dict[str, Mapping[str, str]] = {}
    written: dict[tuple[int, str], str] = {}
    for_all = image.broker_configs.get("", {})
    for broker in sorted({broker for broker, _ in before.rates} | brokers):
        name = str(broker)
        if tree.config_path(tree.BROKER_CONFIG, name) in image.damaged:
            written |= {place: value for place, value in before.rates.items() if place[0] == broker}
            continue
        now = image.broker_configs.get(name, {})
        config = dict(now)
        for key in RATE_KEYS:
            is_ours = key in now and now[key] == before.rates.get((broker, key))
            is_free = key not in now and key not in for_all
            if broker in brokers and (is_ours or is_free):
                config[key] = written[broker, key] = rate
            elif is_ours:
                config.pop(key)
        if config != now:
            changed[name] = config
    return changed, written


def write_configs(image: MetadataImage, slow: ThrottleConfigs) -> tuple[tuple[StoreOperation, ...], MetadataImage]:
    """Return the operations for changed settings and the image after them."""
    operations: list[StoreOperation] = []
    for topic, config in slow.topics.items():
        exists = topic in image.topic_configs
        operations.extend(config_operations(tree.TOPIC_CONFIG, topic, config, exists=exists))
    for broker, config in slow.brokers.items():
        exists = broker in image.broker_configs
        operations.extend(config_operations(tree.BROKER_CONFIG, broker, config, exists=exists))
    after = image.with_topics(configs=slow.topics) if slow.topics else image
    for broker, config in slow.brokers.items():
        after = after.with_broker_config(broker, config)
    return tuple(operations), after
