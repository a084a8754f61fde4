"""The monitor process: clusters, alerts and HTTP server on one event loop, until a signal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from ottla.base.gc_pause import configure_collector
from ottla.monitor.alerts.alert_manager import AlertManager
from ottla.monitor.alerts.ledger import AlertStore
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.config import MonitorConfig
from ottla.monitor.http.app import MonitorApp
from ottla.web.connections import REQUEST_TIMEOUT_SECONDS
from ottla.web.server import HttpServer, stop_signal


async def run_monitor(
    config: MonitorConfig, listener: socket.socket, ledger: AlertStore | None, on_ready: Callable[[], None]
) -> None:
    """Run until SIGTERM or SIGINT; `on_ready` is called once the server answers."""
    configure_collector()  # a full collection takes 80 ms
    stopped = stop_signal()
    monitors = {settings.name: ClusterMonitor(settings) for settings in config.clusters}
    alerting = AlertManager(config.alerts, monitors, ledger) if ledger is not None else None
    host, port = listener.getsockname()[:2]
    app = MonitorApp(
        monitors,
        hosts=[host, *config.http.allow_hosts],
        alerts=alerting.status if alerting is not None else None,
        listener={"address": f"{host}:{port}", "tls": "", "timeout": int(REQUEST_TIMEOUT_SECONDS)},
    )
    server = HttpServer(app)
    for monitor in monitors.values():
        monitor.start()
    if alerting is not None:
        alerting.start()
    await server.serve_until(listener, [stopped], on_ready)
    if alerting is not None:
        await alerting.stop()
    await asyncio.gather(*(monitor.stop() for monitor in monitors.values()))
