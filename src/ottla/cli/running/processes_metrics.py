"""One `/metrics` for all brokers of a machine: a process beside them, which asks each and puts their answers together.

A process of its own, so that a scrape holds up neither a broker nor whoever restarts them. Its address, password and
certificate are those of the settings file. A broker that does not answer is left out, and `ottla_process_up` says so.
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
from ottla.broker.monitoring.access import metrics_login, metrics_tls
from ottla.broker.monitoring.http import BadRequestError, HttpAnswer, HttpRequest, HttpServer
from ottla.broker.monitoring.routes import OPEN_PATHS
from ottla.broker.monitoring.start import MetricsAccessError
from ottla.cli.arguments import parse_pairs
from ottla.cli.terminal import EXIT_FAILED
from ottla.metrics.merged_pages import merge_pages, up_family
from ottla.metrics.prometheus import CONTENT_TYPE
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import ask_page

ASK_SECONDS_MAX: Final = 5.0  # Prometheus gives up after ten
REFRESH_SECONDS: Final = 5.0
EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound to)
INDEX: Final = "/metrics\n/metrics?partitions=true\n/healthz\n/readyz\n"


class Together:
    """Answers requests with what all brokers say."""

    def __init__(self, urls: Mapping[int, str], login: str, workers: ThreadPoolExecutor) -> None:
        """`urls` are those of the brokers' own endpoints; `login` is `name:password@`, or nothing."""
        self._urls = urls
        self._login = login
        self._workers = workers

    async def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.method == "POST" or request.path.startswith("/jolokia"):
            own = ", ".join(self._urls.values())
            raise BadRequestError(HTTPStatus.NOT_FOUND, f"several brokers tell their metrics here; ask one of {own}")
        if request.path == "/":
            return HttpAnswer(iter((INDEX,)))
        if request.path == "/healthz":
            return HttpAnswer(iter(("ok\n",)))
        if request.path == "/readyz":
            return await self._readiness()
        if request.path != "/metrics":
            raise BadRequestError(HTTPStatus.NOT_FOUND, "there is nothing here; try /metrics")
        wants_all = request.query.get("partitions", "").lower() in ("true", "1", "yes")
        pages = await self._ask("/metrics?partitions=true" if wants_all else "/metrics")
        answers = {broker: page is not None for broker, page in pages.items()}
        whole = {broker: page for broker, page in pages.items() if page is not None}

        def pieces() -> Sequence[str]:
            return [*up_family(answers, self._urls), *merge_pages(whole)]

        return HttpAnswer(iter(await asyncio.get_running_loop().run_in_executor(self._workers, pieces)), CONTENT_TYPE)

    async def _readiness(self) -> HttpAnswer:
        away = [broker for broker, page in (await self._ask("/readyz")).items() if page is None]
        if not away:
            return HttpAnswer(iter(("ok\n",)))
        line = f"not ready: broker {', '.join(map(str, away))}\n"
        return HttpAnswer(iter((line,)), status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def _ask(self, path: str) -> dict[int, str | None]:
        """The page of each broker; None of one that does not answer, or not with 200."""
        loop = asyncio.get_running_loop()
        asked = {
            broker: loop.run_in_executor(self._workers, self._page, url, path) for broker, url in self._urls.items()
        }
        return {broker: await answer for broker, answer in asked.items()}

    def _page(self, url: str, path: str) -> str | None:
        try:
            return ask_page(url.replace("://", f"://{self._login}", 1), path, "", seconds_max=ASK_SECONDS_MAX)
        except OperationError:
            return None

    def __repr__(self) -> str:
        return f"<Together {', '.join(map(str, self._urls))}>"


def own_url(settings: BrokerSettings, port: int) -> str:
    """Where a process of this file tells its own metrics, seen from this machine."""
    is_here = settings.ottla_metrics_ssl_keystore_location is not None or settings.ottla_metrics_host in EVERYWHERE
    host = LOOPBACK if is_here else settings.ottla_metrics_host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def login_of(settings: BrokerSettings) -> str:
    from urllib.parse import quote  # noqa: PLC0415 (most endpoints have no password)

    name, password = settings.ottla_metrics_username, settings.ottla_metrics_password
    return f"{quote(name, safe='')}:{quote(password, safe='')}@" if name is not None and password is not None else ""


async def serve(settings: BrokerSettings, ports: Mapping[int, int]) -> None:
    """Until SIGTERM. Raises OSError if the address cannot be had, MetricsAccessError for a bad certificate."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tls = metrics_tls(settings)
    with ThreadPoolExecutor(len(ports) + 1) as workers:
        urls = {broker: own_url(settings, port) for broker, port in ports.items()}
        together = Together(urls, login_of(settings), workers)
        context = tls.context if tls is not None else None
        server = HttpServer(
            settings.ottla_metrics_host, together, metrics_login(settings), OPEN_PATHS, context, workers
        )
        await server.start(settings.ottla_metrics_port)
        scheme, host = "https" if tls is not None else "http", settings.ottla_metrics_host
        place = f"[{host}]" if ":" in host else host
        print(f"metrics of all brokers on {scheme}://{place}:{server.port}/metrics", flush=True)
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
    ports = {int(broker): int(port) for broker, _, port in (place.partition("=") for place in options.broker)}
    try:
        settings = load_broker_settings(options.config, parse_pairs(options.override, allow_bare=False))
        asyncio.run(serve(settings, ports))
    except OSError as problem:
        place = f"{settings.ottla_metrics_host}:{settings.ottla_metrics_port}"
        reason = problem.strerror or problem
        print(f"The metrics of all brokers cannot be told on {place}: {reason}.", file=sys.stderr)
        return EXIT_FAILED
    except (MetricsAccessError, SettingsError) as problem:
        print(f"The metrics of all brokers cannot be told: {problem}.", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
