"""What is looked at before a broker begins: certificates, addresses, the metadata store. A problem leaves no traces."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.broker.connection_limits import connection_limits, link_options
from ottla.broker.workers import Workers
from ottla.controller.stores.embedded import FILE_NAME as METADATA_FILE
from ottla.network.link_options import link_problem
from ottla.network.listener import listen
from ottla.storage.broker_epoch_file import has_lived_in_cluster
from ottla.storage.log_dirs import LogDirs

if TYPE_CHECKING:
    from ottla.broker.security.tls import BrokerTls


class StartError(Exception):
    """Why the broker does not start: one line with cause and cure."""


def check_metadata_store(settings: BrokerSettings, log_dirs: LogDirs) -> None:
    """Partitions without the store that knows them would all be taken for strays: rather not start."""
    failure = log_dirs.dirs[0].failure
    if failure is not None:
        raise StartError(f"{failure}. This folder, the first of log.dirs, holds the metadata store.")
    store = Path(settings.log_dirs[0]) / METADATA_FILE
    if not store.exists() and has_lived_in_cluster(log_dirs.dirs):
        raise StartError(
            f"{settings.log_dirs[0]} belongs to a broker of a cluster, but zookeeper.connect is not set. Set it to the "
            "cluster's ZooKeeper, or give this broker a folder of its own."
        )
    if log_dirs.found and not store.exists():
        raise StartError(
            f"{store} is gone, but the log folders hold {len(log_dirs.found)} partitions. Put it back from a backup: "
            "without it nobody knows which topics these are. To start empty, move the partitions' folders away."
        )


def make_tls(settings: BrokerSettings, clock: Clock, workers: Workers) -> BrokerTls | None:
    """Read certificates before anything else is touched, as addresses are bound; None if no listener needs any."""
    if not any(listener.protocol in ("SSL", "SASL_SSL") for listener in settings.listeners):
        return None
    from ottla.broker.security.tls import BrokerTls  # noqa: PLC0415 (a broker without TLS starts without it)
    from ottla.security.tls import TlsError  # noqa: PLC0415

    try:
        return BrokerTls(settings, clock, workers)
    except TlsError as problem:
        raise StartError(str(problem)) from None


def bind_addresses(settings: BrokerSettings) -> list[socket.socket]:
    """Bind every address before anything else is touched: a port in use must not leave traces."""
    problem = link_problem(link_options(settings))
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
                "Stop whatever uses that address, or choose another one in listeners."
            ) from error
    return bound
