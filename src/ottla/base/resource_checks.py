"""What groups and subscriptions to client metrics may set. Pure; codes and sentences are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.broker_settings import BrokerSettings
from ottla.base.client_matching import parse_matcher
from ottla.base.errors import Error, KafkaError
from ottla.base.resource_keys import INTERVAL_MS_MAX, INTERVAL_MS_MIN, ClientMetricsKeys, GroupResourceKeys
from ottla.base.setting_types import BadValueError

KINDS_OF_GROUPS = ("consumer", "share", "streams")
# The broker's bounds are named after the group's key, but for this one.
BOUNDED_BY = {"streams.num.standby.replicas": "standby.replicas"}


def check_client_metrics(name: str, new: Mapping[str, str]) -> None:
    """The whole new set of settings of one subscription. Raises KafkaError."""
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Subscription name can't be empty")
    for key in new:
        if key not in ClientMetricsKeys.keys:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        values = {key: ClientMetricsKeys.keys[key].value(text) for key, text in new.items()}
        parse_matcher(values.get("match", ()))
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
    interval_ms = values.get("interval.ms", INTERVAL_MS_MAX)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
        )


def check_group(name: str, new: Mapping[str, str], settings: BrokerSettings) -> None:
    """The whole new set of settings of one group, within the broker's bounds. Raises KafkaError."""
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
    for key in new:
        if key not in GroupResourceKeys.keys:
            raise KafkaError(Error.INVALID_CONFIG, f"Unknown group config name: {key}")
    try:
        own = {key: GroupResourceKeys.keys[key].value(text) for key, text in new.items()}
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
    values = {key: own.get(key, inherited_by_groups(key, settings)) for key in GroupResourceKeys.keys}
    for key, value in values.items():
        _check_bounds(key, value, settings)
    for kind in KINDS_OF_GROUPS:
        if values[f"{kind}.session.timeout.ms"] <= values[f"{kind}.heartbeat.interval.ms"]:
            _refuse(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def inherited_by_groups(key: str, settings: BrokerSettings) -> Any:
    """What a group has that does not set the key itself."""
    of_broker = settings.keys.get(f"group.{key}")
    return getattr(settings, of_broker.attribute) if of_broker else GroupResourceKeys.keys[key].default


def _check_bounds(key: str, value: Any, settings: BrokerSettings) -> None:
    kind, _, rest = key.partition(".")
    rest = BOUNDED_BY.get(key, rest)
    least, most = (settings.keys.get(f"group.{kind}.{bound}.{rest}") for bound in ("min", "max"))
    if least is not None and value < getattr(settings, least.attribute):
        _refuse(f"{key} must be greater than or equal to {least.name}")
    if most is not None and value > getattr(settings, most.attribute):
        _refuse(f"{key} must be less than or equal to {most.name}")


def _refuse(sentence: str) -> None:
    raise KafkaError(Error.INVALID_CONFIG, sentence)
