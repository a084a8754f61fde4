"""One `/metrics` endpoint for all brokers of a machine, served by a separate process.

A separate process keeps scrapes away from the brokers and from their supervisor. Address, password and certificate are
those of the settings file. A broker that does not answer is omitted, and `ottla_process_up` reports it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.listeners import LOOPBACK
from ottla.base.settings import SettingsError
from ottla.broker.metrics_endpoint.endpoint import OPEN_PATHS
from ottla.broker.metrics_endpoint.http_server import (
    BadRequestError,
    HttpRequest,
    HttpResponse,
    HttpServer,
    metrics_login,
    metrics_tls,
)
from ottla.broker.metrics_endpoint.start import MetricsAccessError
from ottla.cli.arguments import parse_pairs
from ottla.cli.terminal import EXIT_FAILED
from ottla.metrics.prometheus import CONTENT_TYPE, merge_pages, up_family
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import read_url

FETCH_SECONDS_MAX: Final = 5.0  # Prometheus' default timeout is ten seconds
REFRESH_SECONDS: Final = 5.0
WILDCARD_HOSTS: Final = ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound to)
INDEX: Final = "/metrics\n/metrics?partitions=true\n/healthz\n/readyz\n"


class MergedMetricsHandler:
    """Answers requests with the merged pages of all brokers."""

    def __init__(self, urls: Mapping[int, str], login: str, workers: ThreadPoolExecutor) -> None:
        """`urls` are the brokers' own endpoints; `login` is `name:password@` or empty."""
        self._urls = urls
        self._login = login
        self._workers = workers

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method == "POST" or request.path.startswith("/jolokia"):
            own = ", ".join(self._urls.values())
            raise BadRequestError(HTTPStatus.NOT_FOUND, f"this endpoint merges several brokers; query one of {own}")
        if request.path == "/":
            return HttpResponse(iter((INDEX,)))
        if request.path == "/healthz":
            return HttpResponse(iter(("ok\n",)))
        if request.path == "/readyz":
            return await self._readiness()
        if request.path != "/metrics":
            raise BadRequestError(HTTPStatus.NOT_FOUND, "not found; try /metrics")
        wants_all = request.query.get("partitions", "").lower() in ("true", "1", "yes")
        pages = await self._fetch_pages("/metrics?partitions=true" if wants_all else "/metrics")
        answers = {broker: page is not None for broker, page in pages.items()}
        whole = {broker: page for broker, page in pages.items() if page is not None}

        def pieces() -> Sequence[str]:
            return [*up_family(answers, self._urls), *merge_pages(whole)]

        return HttpResponse(iter(await asyncio.get_running_loop().run_in_executor(self._workers, pieces)), CONTENT_TYPE)

    async def _readiness(self) -> HttpResponse:
        away = [broker for broker, page in (await self._fetch_pages("/readyz")).items() if page is None]
        if not away:
            return HttpResponse(iter(("ok\n",)))
        line = f"not ready: broker {', '.join(map(str, away))}\n"
        return HttpResponse(iter((line,)), status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def _fetch_pages(self, path: str) -> dict[int, str | None]:
        """The page of each broker; None without an answer or with a status other than 200."""
        loop = asyncio.get_running_loop()
        requests = {
            broker: loop.run_in_executor(self._workers, self._fetch_page, url, path)
            for broker, url in self._urls.items()
        }
        return {broker: await answer for broker, answer in requests.items()}

    def _fetch_page(self, url: str, path: str) -> str | None:
        try:
            return read_url(url.replace("://", f"://{self._login}", 1), path, "", seconds_max=FETCH_SECONDS_MAX)
        except OperationError:
            return None

    def __repr__(self) -> str:
        return f"<MergedMetricsHandler {', '.join(map(str, self._urls))}>"


def broker_metrics_url(settings: BrokerSettings, port: int) -> str:
    """The metrics URL of a process, seen from this machine."""
    is_here = settings.ottla_metrics_ssl_keystore_location is not None or settings.ottla_metrics_host in WILDCARD_HOSTS
    host = LOOPBACK if is_here else settings.ottla_metrics_host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def metrics_credentials(settings: BrokerSettings) -> str:
    from urllib.parse import quote  # noqa: PLC0415 (most endpoints have no password)

    name, password = settings.ottla_metrics_username, settings.ottla_metrics_password
    return f"{quote(name, safe='')}:{quote(password, safe='')}@" if name is not None and password is not None else ""


async def serve(settings: BrokerSettings, ports: Mapping[int, int]) -> None:
    """Serve until SIGTERM. Raises OSError if the address is unavailable, MetricsAccessError for a bad certificate."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tls = metrics_tls(settings)
    with ThreadPoolExecutor(len(ports) + 1) as workers:
        urls = {broker: broker_metrics_url(settings, port) for broker, port in ports.items()}
        together = MergedMetricsHandler(urls, metrics_credentials(settings), workers)
        context = tls.context if tls is not None else None
        server = HttpServer(
            settings.ottla_metrics_host, together, metrics_login(settings), OPEN_PATHS, context, workers
        )
        await server.start(settings.ottla_metrics_port)
        scheme, host = "https" if tls is not None else "http", settings.ottla_metrics_host
        url_host = f"[{host}]" if ":" in host else host
        print(f"metrics of all brokers on {scheme}://{url_host}:{server.port}/metrics", flush=True)
        while not stopping.is_set():
            if tls is not None:
                await asyncio.get_running_loop().run_in_executor(workers, tls.refresh)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), REFRESH_SECONDS if tls is not None else None)
        await server.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="metrics of all")
    parser.add_argument("--config")
    parser.add_argument("--broker", action="append", default=[])
    parser.add_argument("--override", action="append", default=[])
    options = parser.parse_args(arguments)
    ports = {int(broker): int(port) for broker, _, port in (address.partition("=") for address in options.broker)}
    try:
        settings = load_broker_settings(options.config, parse_pairs(options.override, allow_bare=False))
        asyncio.run(serve(settings, ports))
    except OSError as problem:
        address = f"{settings.ottla_metrics_host}:{settings.ottla_metrics_port}"
        reason = problem.strerror or problem
        print(f"The metrics of all brokers cannot be served on {address}: {reason}.", file=sys.stderr)
        return EXIT_FAILED
    except (MetricsAccessError, SettingsError) as problem:
        print(f"The metrics of all brokers cannot be served: {problem}.", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
