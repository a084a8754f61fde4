"""The monitor as a program of its own: clusters, alerts and HTTP on one event loop, until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Final

from ottla.base.tasks import ask
from ottla.base.uncollected import settle_garbage_collector
from ottla.monitor.alerts.alerting import Alerting
from ottla.monitor.alerts.ledger import Ledger
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.config import MonitorConfig
from ottla.monitor.http.app import LOCAL_HOSTS, MonitorApp
from ottla.monitor.http.limits import make_server
from ottla.operations.http_connections import REQUEST_SECONDS_MAX

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def run_monitor(
    config: MonitorConfig, listener: socket.socket, ledger: Ledger | None, on_ready: Callable[[], None]
) -> None:
    """Returns after SIGTERM or SIGINT; `on_ready` is called when requests are answered."""
    settle_garbage_collector()  # a look at everything that is kept takes 80 ms
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    monitors = {settings.name: ClusterMonitor(settings) for settings in config.clusters}
    alerting = Alerting(config.alerts, monitors, ledger) if ledger is not None else None
    host, port = listener.getsockname()[:2]
    app = MonitorApp(
        monitors,
        hosts={*LOCAL_HOSTS, host, *config.http.allow_hosts},
        alerts=alerting.told if alerting is not None else None,
        listener={"address": f"{host}:{port}", "tls": "", "timeout": int(REQUEST_SECONDS_MAX)},
    )
    server = make_server(app)
    for monitor in monitors.values():
        monitor.start()
    if alerting is not None:
        alerting.start()
    serving = ask(server.serve([listener]), "HTTP server of the monitor")
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    on_ready()
    stopped = ask(stopping.wait(), "signal")
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    if alerting is not None:
        await alerting.stop()
    await asyncio.gather(*(monitor.stop() for monitor in monitors.values()))
