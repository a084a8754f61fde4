"""Eligible leader replicas as a feature of the cluster (KIP-966). Pure, rules of machine.py; sentences are Kafka's.

Who is eligible depends on min.insync.replicas, so everybody must go by the same: while the feature is on (it is, unless
somebody has switched it off) the cluster has one value, which may be changed and not removed, and brokers have none of
their own. A cluster that has no value yet gets that of the controller's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions.machine import Decision, config_operations
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import StoreOperation

FEATURE: Final = "eligible.leader.replicas.version"
LEVEL_MAX: Final = 1
KEY: Final = "min.insync.replicas"
ALL_BROKERS: Final = ""


def is_on(image: MetadataImage) -> bool:
    return image.features.get(FEATURE, LEVEL_MAX) > 0


def decide_minimum(image: MetadataImage, minimum: int) -> Decision[None]:
    """See that the cluster has a value and that no broker has one of its own."""
    operations: list[StoreOperation] = []
    after = image
    wanted = {} if ALL_BROKERS in image.broker_configs else {ALL_BROKERS: with_minimum({}, minimum)}
    for broker, config in image.broker_configs.items():
        if broker == ALL_BROKERS:
            wanted[broker] = with_minimum(config, minimum)
        else:
            wanted[broker] = {key: value for key, value in config.items() if key != KEY}
    for broker, config in wanted.items():
        exists = broker in image.broker_configs
        path = tree.config_path(tree.BROKER_CONFIG, broker)
        if not is_on(image) or path in image.damaged or (exists and config == image.broker_configs[broker]):
            continue
        operations.extend(config_operations(tree.BROKER_CONFIG, broker, config, exists=exists))
        after = after.with_broker_config(broker, config)
    return Decision(tuple(operations), after, None)


def with_minimum(config: Mapping[str, str], minimum: int) -> Mapping[str, str]:
    return config if KEY in config else {**config, KEY: str(minimum)}


def check_minimum(image: MetadataImage, broker: str, named: frozenset[str], new: Mapping[str, str]) -> None:
    """A change of a broker's settings, or of all brokers' (""). Raises KafkaError(INVALID_CONFIG).

    `named` are the keys that the change is about, `new` is what the settings would be.
    """
    if not is_on(image):
        return
    if broker != ALL_BROKERS and KEY in named:
        raise KafkaError(Error.INVALID_CONFIG, f"Broker-level {KEY} cannot be altered while ELR is enabled.")
    if broker == ALL_BROKERS and KEY in image.broker_configs.get(ALL_BROKERS, {}) and KEY not in new:
        raise KafkaError(Error.INVALID_CONFIG, f"Cluster-level {KEY} cannot be removed while ELR is enabled.")
