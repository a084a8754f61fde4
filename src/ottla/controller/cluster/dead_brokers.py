"""Which brokers are dead: found out by knocking at their doors, and written into the store.

A refused connection is proof enough; whoever does not answer at all is given the time of its session. A registration is
taken away only if it is still that of the life that was found dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from ottla.base import tasks
from ottla.controller import tree
from ottla.controller.cluster.registration import Probe, address_of
from ottla.controller.image import BrokerImage
from ottla.controller.stores.store import DeleteNode, SessionStore, StoreOperation, TransactionRefusedError

logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 0.3  # so long a new controller waits for probes before it elects leaders
# A process that was killed dies by and by: its connections end before its port refuses new ones.
PROBE_PAUSES_SECONDS: Final = (0.02, 0.03, 0.05, 0.1, 0.1, 0.2, 0.5, 1.0)


async def find_dead(brokers: Iterable[BrokerImage], probe: Probe) -> list[BrokerImage]:
    """Those whose port refuses connections, as far as that can be told at once."""
    probes = {tasks.ask(probe(broker), f"a probe of broker {broker.id}"): broker for broker in brokers}
    if not probes:
        return []
    done, late = await asyncio.wait(probes, timeout=PROBE_SECONDS)
    for task in late:
        task.cancel()
    return [probes[task] for task in done if task.exception() is None and not task.result()]


async def is_dead(broker: BrokerImage, probe: Probe, is_of_interest: Callable[[], bool]) -> bool:
    """Knock for about two seconds at the door of a broker that may be dying."""
    for seconds in PROBE_PAUSES_SECONDS:
        if not is_of_interest():
            return False
        if not await probe(broker):
            return True
        await asyncio.sleep(seconds)
    return False


async def remove_registration(store: SessionStore, broker: BrokerImage) -> None:
    """Of this very life of a broker; its session may last a while longer."""
    path = tree.broker_path(broker.id)
    node = await store.get(path)
    if node is None or node.created_id != broker.epoch:
        return
    operations: list[StoreOperation] = [DeleteNode(path, node.version)]
    try:
        await store.multi(operations)
    except TransactionRefusedError:
        return
    logger.info("broker %d (%s) refuses connections: its registration was removed", broker.id, address_of(broker))
