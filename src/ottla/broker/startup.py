"""Startup of a broker: checks before anything is written, logging, file limits, broker id, and the ready notification.

A failed check leaves no files on disk.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.base import tasks
from ottla.base.broker_checks import is_loopback
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.compiled import is_compiled, plain_python_message
from ottla.base.listeners import ALL_INTERFACES
from ottla.base.log4j import Log4jConfig, read_log4j
from ottla.base.logs import LogOptions, Rotation, start_logging
from ottla.base.systemd import IN_SYNC, has_notify_socket, notify_systemd
from ottla.broker.configs.connection_options import connection_limits, link_options
from ottla.broker.node import Node
from ottla.broker.offload import Workers, in_slices
from ottla.controller.cluster.registration import allocate_broker_id
from ottla.controller.image import MetadataImage
from ottla.controller.lost_metadata import (
    ACCEPTED_KEY,
    LogDirState,
    StoredTopics,
    find_strays,
    loss_id,
    loss_problem,
    read_stored_topics,
)
from ottla.controller.stores.embedded import FILE_NAME as METADATA_FILE
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import StoreError, StoreUnusableError
from ottla.controller.tree import DamagedNodeError
from ottla.network.socket_options import socket_options_problem
from ottla.network.socket_server import Acceptor, listen
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.broker_epoch_file import was_cluster_broker
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import stored_node_id

if TYPE_CHECKING:
    from ottla.broker.security.tls import BrokerTls

logger = logging.getLogger(__name__)

FILES_WANTED = 100_000

IN_SYNC_CHECK_SECONDS: Final = 0.1
IN_SYNC_REPORT_RETRY_SECONDS: Final = 10.0

PartitionName = tuple[str, int]


class StartError(Exception):
    """Why the broker does not start: one line with the cause and the fix."""


def check_metadata_store(settings: BrokerSettings, log_dirs: LogDirs) -> None:
    """Check that the store exists: without it all partitions would look like strays. Raises StartError."""
    failure = log_dirs.dirs[0].offline_reason
    if failure is not None:
        raise StartError(f"{failure}. This directory, the first of log.dirs, holds the metadata store.")
    store = Path(settings.log_dirs[0]) / METADATA_FILE
    if not store.exists() and was_cluster_broker(log_dirs.dirs):
        raise StartError(
            f"{settings.log_dirs[0]} belongs to a broker of a cluster, but zookeeper.connect is not set. Set it to the "
            "cluster's ZooKeeper, or give this broker its own directory."
        )
    if log_dirs.unopened and not store.exists():
        raise StartError(
            f"{store} is missing, but the log directories hold {len(log_dirs.unopened)} partitions. "
            "Restore it from a backup: without it their topics are unknown. To start empty, move the partition "
            "directories away."
        )


def make_tls(settings: BrokerSettings, clock: Clock, workers: Workers) -> BrokerTls | None:
    """Read certificates before anything is written, like addresses; None if no listener uses TLS."""
    if not any(listener.protocol in ("SSL", "SASL_SSL") for listener in settings.listeners):
        return None
    from ottla.broker.security.tls import BrokerTls  # noqa: PLC0415 (a broker without TLS starts without it)
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        return BrokerTls(settings, clock, workers)
    except TlsError as problem:
        raise StartError(str(problem)) from None


def bind_addresses(settings: BrokerSettings) -> list[socket.socket]:
    """Bind every address before anything is written: a port in use must leave no files."""
    problem = socket_options_problem(link_options(settings))
    if problem is not None:
        raise StartError(f"{problem}.")
    bound: list[socket.socket] = []
    for listener in settings.listeners:
        try:
            bound.append(listen(listener.host, listener.port, connection_limits(settings)))
        except OSError as error:
            for earlier in bound:
                earlier.close()
            raise StartError(
                f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror or error}. "
                "Stop the process that uses this address, or choose another one in listeners."
            ) from error
    return bound


async def resolve_node_id(settings: BrokerSettings, clock: Clock) -> BrokerSettings:
    """Return the settings with a broker id: the id in the log directories, otherwise a new one from ZooKeeper.

    Raises LogDirError or StoreUnusableError if there is none.
    """
    if settings.node_id >= 0:
        return settings
    node_id = stored_node_id(settings.log_dirs)
    if node_id is None:
        node_id = await _generate_broker_id(settings, clock)
        logger.info("broker.id is not set: ZooKeeper assigned id %d", node_id)
    return settings.with_node_id(node_id)


async def _generate_broker_id(settings: BrokerSettings, clock: Clock) -> int:
    from ottla.broker.cluster.broker_lifecycle import make_store  # noqa: PLC0415 (a standalone broker does not need it)

    assert settings.zookeeper_connect is not None
    store = make_store(settings.zookeeper_connect, settings, clock)
    await store.open()
    try:
        return await allocate_broker_id(store, settings.reserved_broker_max_id)
    except StoreError as error:
        raise StoreUnusableError(f"ZooKeeper assigned no broker id: {error}. Set broker.id.") from error
    finally:
        await store.close()


def raise_file_limit() -> int:
    """Raise the soft limit of open files as far as the hard limit allows; returns the resulting limit.

    A broker needs one file per active partition and per connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (max(soft, FILES_WANTED), hard):
        if wanted == soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
        except (ValueError, OSError):
            continue  # the hard limit is lower, or raising it needs more privileges
        soft = wanted
        break
    if soft < FILES_WANTED // 10:
        logger.warning("only %d files may be open at once: raise `ulimit -n` for many partitions or clients", soft)
    return soft


def start_broker_logging(settings: BrokerSettings, environment: Mapping[str, str]) -> None:
    wishes = read_log4j(environment)
    start_logging(log_options(settings, wishes))
    for warning in wishes.warnings:
        logger.warning("%s", warning)


def log_options(settings: BrokerSettings, log4j_options: Log4jConfig) -> LogOptions:
    """Return the logging options. The keys ottla.log.* take precedence over KAFKA_LOG4J_OPTS."""
    is_level_set = "ottla.log.level" in settings.explicit
    return LogOptions(
        folder=settings.ottla_log_dir or log4j_options.folder,
        is_json=settings.ottla_log_format == "json",
        level=settings.ottla_log_level
        if is_level_set or log4j_options.root_level is None
        else log4j_options.root_level,
        levels=log4j_options.levels,
        rotation=Rotation(
            settings.ottla_log_file_max_bytes, settings.ottla_log_file_max_ms, settings.ottla_log_files_kept
        ),
        node_id=settings.node_id,
    )


def check_stored_metadata(settings: BrokerSettings, log_dirs: LogDirs, store: SqliteTree | None) -> None:
    """Check that the store of a standalone broker knows every change that the log directories recorded.

    Raises StoreUnusableError, unless exactly this store was accepted. Then the directories adopt its transaction
    number.
    """
    folders = [LogDirState(each.path, each.metadata_transaction, each.unopened) for each in log_dirs.online]
    path = str(Path(settings.log_dirs[0]) / METADATA_FILE)
    try:
        stored = read_stored_topics(path, store, folders)
    except DamagedNodeError as damage:
        raise StoreUnusableError(
            f"{path} holds a node that cannot be read: {damage}. Restore it from a backup."
        ) from damage
    if stored.cluster_id is not None and log_dirs.cluster_id not in (None, stored.cluster_id):
        return  # the store of another cluster, which the start rejects
    problem = loss_problem(stored, folders)
    if problem is not None:
        if stored.cluster_id is None or settings.ottla_metadata_accepted_loss != loss_id(stored, folders):
            raise StoreUnusableError(problem)
        log_stray_partitions(stored, folders)
    if store is not None:
        store.sync()
    for log_dir in log_dirs.online:
        is_ahead = log_dir.metadata_transaction is not None and log_dir.metadata_transaction > stored.transaction
        if is_ahead or (log_dir.metadata_transaction is None and log_dir.unopened):
            log_dir.reset_transaction(stored.transaction)


def log_stray_partitions(stored: StoredTopics, folders: list[LogDirState]) -> None:
    logger.warning("%s is accepted although it lacks changes, because of %s", stored.path, ACCEPTED_KEY)
    for topic, partitions in find_strays(stored, folders).items():
        numbers = ", ".join(str(partition.partition) for partition in sorted(partitions))
        logger.warning("it does not know topic %s: these partitions become -stray: %s", topic, numbers)


def announce_ready(node: Node, listeners: list[Acceptor], replicas: ReplicaSet) -> None:
    """Announce that the broker accepts connections."""
    settings = node.settings
    plain = plain_python_message(is_plain=not is_compiled())
    if plain is not None:
        logger.warning("%s", plain)
    print(f"ottla broker {settings.node_id} ready on {shown_address(listeners[0])}", flush=True)
    notify_systemd("READY=1")
    if settings.zookeeper_connect and has_notify_socket():
        tasks.spawn_restarting(lambda: report_when_in_sync(node, replicas), "reporting that replicas are in sync")
    # A name server that does not respond must delay neither start nor stop: no other thread waits for this one.
    tasks.start_thread(lambda: warn_about_addresses(settings), "addresses")


def shown_address(listener: Acceptor) -> str:
    host = listener.host or ALL_INTERFACES
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


async def report_when_in_sync(node: Node, replicas: ReplicaSet) -> None:
    """Report once after a start. Rolling restarts wait for this status, and `systemctl status` shows it."""
    await wait_until_in_sync(node, replicas)
    while not notify_systemd(f"STATUS=all replicas were in sync after the start\n{IN_SYNC}={node.id}"):
        await asyncio.sleep(IN_SYNC_REPORT_RETRY_SECONDS)


async def wait_until_in_sync(node: Node, replicas: ReplicaSet) -> None:
    """Wait until all replicas of this broker are open and in sync.

    There may be very many: the search for the next late replica starts only when the previous one is in sync.
    """
    late: PartitionName | None = None
    while (
        replicas.recovering_partitions
        or is_out_of_sync(node.id, node.image, replicas, late)
        or (late := await find_out_of_sync_partition(node, replicas))
    ):
        await asyncio.sleep(IN_SYNC_CHECK_SECONDS)


async def find_out_of_sync_partition(node: Node, replicas: ReplicaSet) -> PartitionName | None:
    image = node.image
    async for name in in_slices(list(replicas.partitions)):
        if is_out_of_sync(node.id, image, replicas, name):
            return name
    return None


def is_out_of_sync(broker: int, image: MetadataImage, replicas: ReplicaSet, name: PartitionName | None) -> bool:
    state = image.partition(*name) if name is not None and name in replicas.partitions else None
    return state is not None and broker not in state.isr


def warn_about_addresses(settings: BrokerSettings) -> None:
    """Log one line for every advertised address that clients cannot use."""
    bound = {listener.name: listener.host for listener in settings.listeners}
    for advertised in settings.advertised_listeners:
        problem = address_problem(advertised.host, bound.get(advertised.name, ""))
        if problem is not None:
            logger.warning(
                "clients are sent to %s: %s. They get one answer and then LEADER_NOT_AVAILABLE or "
                "refused connections: set advertised.listeners to a name of this machine that they can reach",
                advertised,
                problem,
            )


def address_problem(host: str, bound_host: str) -> str | None:
    """Return the reason why clients may not find an advertised host, or None."""
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
