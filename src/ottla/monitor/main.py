"""The monitor process: clusters, alerts and HTTP server on one event loop, until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Final

from ottla.base.gc_pause import configure_collector
from ottla.base.tasks import spawn_awaited
from ottla.monitor.alerts.alert_manager import AlertManager
from ottla.monitor.alerts.ledger import AlertStore
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.config import MonitorConfig
from ottla.monitor.http.app import LOCAL_HOSTS, MonitorApp
from ottla.operations.http_connections import REQUEST_TIMEOUT_SECONDS, make_server

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def run_monitor(
    config: MonitorConfig, listener: socket.socket, ledger: AlertStore | None, on_ready: Callable[[], None]
) -> None:
    """Run until SIGTERM or SIGINT; `on_ready` is called once the server answers."""
    configure_collector()  # a full collection takes 80 ms
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    monitors = {settings.name: ClusterMonitor(settings) for settings in config.clusters}
    alerting = AlertManager(config.alerts, monitors, ledger) if ledger is not None else None
    host, port = listener.getsockname()[:2]
    app = MonitorApp(
        monitors,
        hosts={*LOCAL_HOSTS, host, *config.http.allow_hosts},
        alerts=alerting.status if alerting is not None else None,
        listener={"address": f"{host}:{port}", "tls": "", "timeout": int(REQUEST_TIMEOUT_SECONDS)},
    )
    server = make_server(app)
    for monitor in monitors.values():
        monitor.start()
    if alerting is not None:
        alerting.start()
    serving = spawn_awaited(server.serve([listener]), "HTTP server of the monitor")
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    on_ready()
    stopped = spawn_awaited(stopping.wait(), "signal")
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    if alerting is not None:
        await alerting.stop()
    await asyncio.gather(*(monitor.stop() for monitor in monitors.values()))
