"""Which number a broker of a cluster has when its file gives none: the one in its folders, else a new one."""

from __future__ import annotations

import logging

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.controller.cluster.broker_ids import allocate_broker_id
from ottla.controller.stores.store import StoreError, StoreUnusableError
from ottla.storage.meta_properties import stored_node_id

logger = logging.getLogger(__name__)


async def with_node_id(settings: BrokerSettings, clock: Clock) -> BrokerSettings:
    """The settings with a number in them. LogDirError or StoreUnusableError says why there is none."""
    if settings.node_id >= 0:
        return settings
    node_id = stored_node_id(settings.log_dirs)
    if node_id is None:
        node_id = await _new_id(settings, clock)
        logger.info("no broker.id is set: ZooKeeper has given this broker the id %d", node_id)
    return settings.with_node_id(node_id)


async def _new_id(settings: BrokerSettings, clock: Clock) -> int:
    from ottla.broker.cluster.zookeeper import make_store  # noqa: PLC0415 (a broker that is alone has no use for it)

    assert settings.zookeeper_connect is not None
    store = make_store(settings.zookeeper_connect, settings, clock)
    await store.open()
    try:
        return await allocate_broker_id(store, settings.reserved_broker_max_id)
    except StoreError as error:
        raise StoreUnusableError(f"ZooKeeper gives this broker no id: {error}. Set broker.id.") from error
    finally:
        await store.close()
