"""Rules for changing a running broker's settings: which keys may change, and by how much at a time.

The checks of single values are with the keys; checks across settings are in broker_checks.py. The rules here apply only
to changes at run time. The error messages are Kafka's.
"""

from __future__ import annotations

from typing import Final

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.listeners import CHANGEABLE, PREFIX, is_listener_key, split_listener_key
from ottla.base.settings import Mode

# Kafka lets these at most double or halve in one change.
THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
# Kafka accepts these for a listener; they have no effect here.
WITHOUT_EFFECT: Final = frozenset(
    {
        "principal.builder.class",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.keystore.type",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.type",
    }
)
NOT_ZERO: Final = ("max.connections", "max.connection.creation.rate")


def change_mode(name: str) -> Mode:
    """The scope in which a key may be changed. An unknown key may be, too: it is stored, as by Kafka, without effect.

    TLS and SASL keys with a listener prefix can be changed per broker.
    """
    key = BrokerSettings.keys.get(name)
    if key is not None:
        return key.mode
    of_listener = split_listener_key(name)
    if find_key(name) is None:
        return Mode.CLUSTER_WIDE if not name.startswith(PREFIX) else Mode.PER_BROKER
    if of_listener is None:
        return Mode.READ_ONLY
    base = of_listener.base
    if base in CHANGEABLE:
        return Mode.CLUSTER_WIDE
    return Mode.PER_BROKER if is_listener_key(base) or base in WITHOUT_EFFECT else Mode.READ_ONLY


def change_problem(before: BrokerSettings, after: BrokerSettings) -> str | None:
    """Why the change from `before` to `after` is invalid, or None."""
    for find_problem in (_thread_problem, _cleaner_problem, _connection_problem, _local_retention_problem):
        problem = find_problem(before, after)
        if problem is not None:
            return problem
    return None


def _thread_problem(before: BrokerSettings, after: BrokerSettings) -> str | None:
    for name in THREAD_COUNTS:
        attribute = before.keys[name].attribute
        problem = _step_problem(name, getattr(before, attribute), getattr(after, attribute))
        if problem is not None:
            return problem
    for name in after.texts:
        of_listener = split_listener_key(name)
        if of_listener is not None and of_listener.base in THREAD_COUNTS:
            problem = _step_problem(of_listener.base, before.of_listener(*of_listener), after.of_listener(*of_listener))
            if problem is not None:
                return problem
    return None


def _step_problem(name: str, old: int, new: int) -> str | None:
    what = f"Dynamic thread count update validation failed for {name}={new}, value should"
    if new < old // 2:
        return f"{what} be at least half the current value {old}"
    if new > old * 2:
        return f"{what} not be greater than double the current value {old}"
    return None


def _cleaner_problem(before: BrokerSettings, after: BrokerSettings) -> str | None:
    old, new = before.log_cleaner_threads, after.log_cleaner_threads
    if new < old // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {old}"
    if new > old * 2:
        return f"Log cleaner threads cannot be increased to more than double the current value {old}"
    return None


def _connection_problem(before: BrokerSettings, after: BrokerSettings) -> str | None:
    del before
    for name in NOT_ZERO:
        listeners = [listener.name for listener in after.listeners]
        if 0 in (getattr(after, after.keys[name].attribute), *(after.of_listener(item, name) for item in listeners)):
            return f"Invalid {name} 0"
    return None


def _local_retention_problem(before: BrokerSettings, after: BrokerSettings) -> str | None:
    """Local retention cannot exceed total retention."""
    del before
    for name, local, whole in (
        ("ms", after.log_local_retention_ms, after.log_retention_ms),
        ("bytes", after.log_local_retention_bytes, after.log_retention_bytes),
    ):
        key, limit = f"log.local.retention.{name}", f"log.retention.{name}"
        if whole > -1 and local == -1:
            return f"Invalid value -1 for configuration {key}: Value must not be -1 as {limit} value is set as {whole}."
        if whole > -1 and local > whole:
            return (
                f"Invalid value {local} for configuration {key}: "
                f"Value must not be more than {limit} property value: {whole}"
            )
    return None
