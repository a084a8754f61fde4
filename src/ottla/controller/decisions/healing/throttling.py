"""Slowing down what healing copies, with Kafka's own keys: what has to be set, and what to take back. Pure.

Rules:
1. Throttled are the replicas that move and nobody else: the new ones as followers, those that they can copy from as
   leaders. Brokers get a rate where nobody has set one.
2. What others have set stands. A value that is not the one which healing wrote last is theirs from then on, and healing
   takes nothing of it back.
3. It looks at the moves that are under way and at what is set now: run again it changes nothing. So whatever a
   controller left behind is taken back by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.placement.throttled import ALL, FOLLOWER_REPLICAS, LEADER_REPLICAS, RATE_KEYS, REPLICA_KEYS, words_of
from ottla.controller import tree
from ottla.controller.decisions.changes import without
from ottla.controller.decisions.journals import HealMove, Throttle, Written
from ottla.controller.decisions.machine import config_operations
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import StoreOperation


class Slowed(NamedTuple):
    """Settings as they have to be, where that is not what they are, and what of them is healing's own."""

    topics: Mapping[str, Mapping[str, str]]
    brokers: Mapping[str, Mapping[str, str]]
    throttle: Throttle


def slowed(image: MetadataImage, before: Throttle, moves: Iterable[HealMove], rate: int) -> Slowed:
    """What these moves need, and no more."""
    words: dict[tuple[str, str], set[str]] = {}
    brokers: set[int] = set()
    for move in moves:
        partition = image.partition(*move.partition)
        if partition is None:
            continue
        sources = without(partition.replicas, (*move.gone, *move.new))
        for key, row in ((LEADER_REPLICAS, sources), (FOLLOWER_REPLICAS, move.new)):
            words.setdefault((move.partition.topic, key), set()).update(words_of(move.partition.partition, row))
        brokers.update((*sources, *move.new))  # also who is not there: it may be back in a moment
    topics, replicas = slowed_topics(image, before, words)
    configs, rates = slowed_brokers(image, before, brokers, str(rate))
    return Slowed(topics, configs, Throttle(replicas, rates))


def slowed_topics(
    image: MetadataImage, before: Throttle, words: Mapping[tuple[str, str], set[str]]
) -> tuple[dict[str, Mapping[str, str]], dict[tuple[str, str], Written]]:
    changed: dict[str, Mapping[str, str]] = {}
    written: dict[tuple[str, str], Written] = {}
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
                others -= own.words
            needed = words.get((topic, key), set()) - others if ALL not in others else set()
            if needed:
                config[key] = ",".join(sorted(others | needed))
                written[topic, key] = Written(config[key], frozenset(needed))
            elif is_ours and others:
                config[key] = ",".join(sorted(others))
            elif is_ours:
                config.pop(key)
        if config != now:
            changed[topic] = config
    return changed, written


def slowed_brokers(
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


def write_configs(image: MetadataImage, slow: Slowed) -> tuple[tuple[StoreOperation, ...], MetadataImage]:
    """The operations for changed settings and the image that follows."""
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
