"""The store of a broker's cluster, made of its settings."""

from __future__ import annotations

import os

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.controller.stores.store import StoreUnusableError
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.security.zookeeper import ZooKeeperSecurityError, broker_security


def make_store(connect: str, settings: BrokerSettings, clock: Clock) -> ZooKeeperStore:
    """Not open yet. Raises StoreUnusableError if it cannot be reached as safely as the settings ask for."""
    try:
        security = broker_security(settings, os.environ)
    except ZooKeeperSecurityError as problem:
        raise StoreUnusableError(str(problem)) from None
    return ZooKeeperStore(
        connect,
        settings.zookeeper_session_timeout_ms,
        clock,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        security=security,
    )
