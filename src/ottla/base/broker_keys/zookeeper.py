"""A cluster's ZooKeeper, and the numbers of brokers that have none. Kafka 4 has none of these keys: they are those of
3.9, shown only where somebody has set them."""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.words import HIGH, LOW, OWN_WINDOW
from ottla.base.setting_types import invalid_value
from ottla.base.settings import Boolean, Int, Long, OptionalInt, OptionalText, Settings
from ottla.base.zookeeper_connect import parse_connect

SESSION_MS_DEFAULT: Final = 6000  # Kafka's is 18,000: a paused broker is replaced three times as fast here


def connect_problem(name: str, value: object) -> str | None:
    """An empty value stands for none: templates leave it empty."""
    try:
        if str(value).strip():
            parse_connect(str(value))
    except ValueError as problem:
        return invalid_value(name, value, str(problem))
    return None


class ConnectString(OptionalText):
    """None also for a text of blanks."""

    def effective(self, settings: Settings) -> str | None:
        text = super().effective(settings)
        return (text or "").strip() or None


class ZooKeeperKeys(Settings):
    """How a broker of a cluster reaches ZooKeeper."""

    zookeeper_connect = ConnectString(
        check=connect_problem,
        importance=HIGH,
        is_internal=True,
        note="ZooKeeper of the cluster: host:port[,host:port ...][/chroot]; without it this broker is alone.",
    )
    zookeeper_connection_timeout_ms = OptionalInt(
        at_least=1,
        importance=HIGH,
        is_internal=True,
        note="Time a start waits for ZooKeeper; without it zookeeper.session.timeout.ms.",
    )
    zookeeper_session_timeout_ms = Int(
        SESSION_MS_DEFAULT,
        at_least=1,
        importance=HIGH,
        is_internal=True,
        note="Time without a sign of life after which ZooKeeper takes a broker for dead. Kafka's default is 18000.",
    )
    zookeeper_max_in_flight_requests = Int(
        10,
        at_least=1,
        is_internal=True,
        unused=OWN_WINDOW,
        note="Most requests to ZooKeeper that wait for their answers.",
    )
    broker_id_generation_enable = Boolean(
        True,
        is_internal=True,
        note="Whether a broker of a cluster that has no id gets one from ZooKeeper, above reserved.broker.max.id.",
    )
    reserved_broker_max_id = Int(
        1000, at_least=0, importance=LOW, is_internal=True, note="Largest id that may be given to a broker by hand."
    )
    controlled_shutdown_max_retries = Int(
        3, at_least=0, is_internal=True, note="How often a stopping broker asks again that its leaders be moved."
    )
    controlled_shutdown_retry_backoff_ms = Long(
        5000, at_least=0, is_internal=True, note="Time between two such questions."
    )
