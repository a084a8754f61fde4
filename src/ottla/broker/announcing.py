"""Telling the world that the broker serves: the ready line, systemd, and what may keep clients from finding it."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterable
from typing import Final

from ottla.base import tasks
from ottla.base.broker_checks import is_loopback
from ottla.base.broker_settings import BrokerSettings
from ottla.base.compiled import is_compiled, plain_words
from ottla.base.listeners import ALL_INTERFACES
from ottla.base.systemd import IN_SYNC, is_listening, tell_systemd
from ottla.broker.node import Node
from ottla.broker.slices import in_slices
from ottla.controller.image import MetadataImage
from ottla.network.listener import Listener
from ottla.replication.replica_set import ReplicaSet

logger = logging.getLogger(__name__)

IN_SYNC_LOOK_SECONDS: Final = 0.1
IN_SYNC_AGAIN_SECONDS: Final = 10.0

Name = tuple[str, int]


def announce(node: Node, listeners: list[Listener], replicas: ReplicaSet) -> None:
    """The broker accepts connections from now on."""
    settings = node.settings
    plain = plain_words(is_plain=not is_compiled())
    if plain is not None:
        logger.warning("%s", plain)
    print(f"ottla broker {settings.node_id} ready on {shown_address(listeners[0])}", flush=True)
    tell_systemd("READY=1")
    if settings.zookeeper_connect and is_listening():
        tasks.keep_running(lambda: tell_when_in_sync(node, replicas), "telling that replicas are in sync")
    # A name server that does not answer must hold up neither the start nor the end: nobody waits for this thread.
    threading.Thread(target=warn_about_addresses, args=(settings,), name="addresses", daemon=True).start()


def shown_address(listener: Listener) -> str:
    host = listener.host or ALL_INTERFACES
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


async def tell_when_in_sync(node: Node, replicas: ReplicaSet) -> None:
    """After a start: once. Whoever restarts several brokers waits for it, and `systemctl status` shows it."""
    await in_sync(node, replicas)
    while not tell_systemd(f"STATUS=all replicas were in sync after the start\n{IN_SYNC}={node.id}"):
        await asyncio.sleep(IN_SYNC_AGAIN_SECONDS)


async def in_sync(node: Node, replicas: ReplicaSet) -> None:
    """Wait until everything that this broker holds is open, and as new as its leader has it.

    That may be very much: the next one that is late is looked for when the one before is not late any more.
    """
    late: Name | None = None
    while (
        replicas.recovering or is_late(node.id, node.image, replicas, late) or (late := await find_late(node, replicas))
    ):
        await asyncio.sleep(IN_SYNC_LOOK_SECONDS)


async def find_late(node: Node, replicas: ReplicaSet) -> Name | None:
    image = node.image
    async for name in in_slices(list(replicas.partitions)):
        if is_late(node.id, image, replicas, name):
            return name
    return None


def is_late(broker: int, image: MetadataImage, replicas: ReplicaSet, name: Name | None) -> bool:
    state = image.partition(*name) if name is not None and name in replicas.partitions else None
    return state is not None and broker not in state.isr


def warn_about_addresses(settings: BrokerSettings) -> None:
    """One line for every address that clients are told and cannot use."""
    bound = {listener.name: listener.host for listener in settings.listeners}
    for advertised in settings.advertised_listeners:
        problem = address_problem(advertised.host, bound.get(advertised.name, ""))
        if problem is not None:
            logger.warning(
                "clients are told to connect to %s: %s. They get one answer and then LEADER_NOT_AVAILABLE or "
                "refused connections: set advertised.listeners to a name of this machine that they can reach",
                advertised,
                problem,
            )


def address_problem(host: str, bound_host: str) -> str | None:
    """Why clients may not find an advertised host; None if nothing speaks against it."""
    if is_loopback(bound_host):
        return None  # only this machine can connect anyway
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return f"{host} does not resolve, at least not on this machine"
    if _all_loopback(str(item[4][0]) for item in found):
        return f"on any other machine {host} is that machine itself"
    return None


def _all_loopback(addresses: Iterable[str]) -> bool:
    return all(is_loopback(address) for address in addresses)
