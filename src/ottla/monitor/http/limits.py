"""The monitor's HTTP server: headers, connections and the time that an idle one is kept are bounded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import uvicorn

from ottla.operations.http_connections import LimitedProtocol

KEEP_ALIVE_SECONDS: Final = 30
STOP_SECONDS_MAX: Final = 3
HEADER_BYTES_MAX: Final = 16 << 10
CONNECTIONS_MAX: Final = 500
BACKLOG: Final = 128


class HttpServer(uvicorn.Server):
    """A server on a loop of somebody else, who also hears the signals."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def make_server(app: Callable[..., Any]) -> HttpServer:
    """`await make_server(app).serve([listen(host, port)])` serves until `should_exit` is set."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
    )
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what a client does wrong is told to the client
    return HttpServer(config)
