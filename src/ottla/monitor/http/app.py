"""Burrow's HTTP API over one or more cluster monitors, as an ASGI application.

Rules:
1. Paths, fields, messages and status codes are Burrow's. Other errors use its format.
2. Names in paths may contain any character, also slashes (%2F): a path is split before it is decoded.
3. While old commits are being read, verdicts would be wrong: requests for groups are answered with 503.
4. The header `Age` has the age of the figures.
5. Only known Host headers are accepted (DNS rebinding), requests that change something need the same origin, and bodies
   are small.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.metrics.prometheus import CONTENT_TYPE
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.http import burrow_responses
from ottla.monitor.http.metrics import scrape
from ottla.monitor.lag_evaluation import GroupVerdict
from ottla.monitor.offset_store import NO_OWNER
from ottla.web.application import JSON, HttpApp, raw_path, read_body
from ottla.web.errors import HttpError
from ottla.web.hosts import AllowedHosts, host_name, is_foreign_origin
from ottla.web.routing import RouteTable, path_segments

BODY_BYTES_MAX: Final = 16 << 10
SLICE: Final = 200  # partitions serialized at once, about 2 ms
LOG_LEVELS: Final = {
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
LEVEL_NAMES: Final = {LOG_LEVELS[name]: name for name in ("debug", "info", "warn", "error", "fatal")}
LOGGER: Final = "ottla.monitor"


class HttpCall(NamedTuple):
    """A request with the path parameters."""

    request: Request
    path: str
    names: Mapping[str, str]


Handler = Callable[[HttpCall], Awaitable[Response]]


class MonitorApp(HttpApp):
    """The application. `alerts` returns open alerts and their history, for our own `/v3/alerts`."""

    headers = (*HttpApp.headers, (b"cache-control", b"no-store"))

    def __init__(
        self,
        clusters: Mapping[str, ClusterMonitor],
        *,
        hosts: Iterable[str] = (),
        alerts: Callable[[], Awaitable[Mapping[str, object]]] | None = None,
        listener: Mapping[str, object] | None = None,
    ) -> None:
        self.clusters = clusters
        self.hosts = AllowedHosts(hosts)
        self.alerts = alerts
        self.listener = dict(listener or {})
        self.hostname = socket.gethostname()
        rows: list[tuple[str, str, Handler]] = [
            ("GET", "/burrow/admin", self._admin),
            ("GET", "/burrow/admin/ready", self._ready),
            ("GET", "/metrics", self._metrics),
            ("GET", "/v3/kafka", self._clusters),
            ("GET", "/v3/kafka/{cluster}", self._cluster),
            ("GET", "/v3/kafka/{cluster}/topic", self._topics),
            ("GET", "/v3/kafka/{cluster}/topic/{topic}", self._topic),
            ("GET", "/v3/kafka/{cluster}/topic/{topic}/consumers", self._topic_consumers),
            ("GET", "/v3/kafka/{cluster}/consumer", self._consumers),
            ("GET", "/v3/kafka/{cluster}/consumer/{consumer}", self._consumer),
            ("GET", "/v3/kafka/{cluster}/consumer/{consumer}/status", self._consumer_status),
            ("GET", "/v3/kafka/{cluster}/consumer/{consumer}/lag", self._consumer_lag),
            ("GET", "/v3/config", self._config),
            ("GET", "/v3/config/{kind}", self._config_list),
            ("GET", "/v3/config/{kind}/{name}", self._config_detail),
            ("GET", "/v3/admin/loglevel", self._log_level),
            ("GET", "/v3/alerts", self._alerts),
            ("DELETE", "/v3/kafka/{cluster}/consumer/{consumer}", self._delete_consumer),
            ("POST", "/v3/admin/loglevel", self._set_log_level),
        ]
        self.table = RouteTable(rows)

    async def answer(self, request: Request) -> Response:
        self._check_host(request)
        try:
            segments = path_segments(raw_path(request).strip(b"/"))
        except UnicodeDecodeError:
            raise HttpError(400, "the path is not valid UTF-8") from None
        found = self.table.find(request.method, segments)
        if found.target is None:
            if found.allowed_methods:
                raise HttpError(405, "method not allowed")
            return _json({"error": True, "message": "invalid request type", "result": {}}, 404)  # Burrow's format
        if request.method not in ("GET", "HEAD") and is_foreign_origin(
            request.headers.get("origin"), request.headers["host"]
        ):
            raise HttpError(403, "pages of another origin may not change anything")
        return await found.target(HttpCall(request, request.scope["path"], found.parameters))

    def error_response(self, request: Request, problem: HttpError) -> Response:
        info = self._request_info(request.scope["path"])
        return _json({"error": True, "message": problem.message, "request": info}, problem.status)

    # ---- health and metrics

    async def _admin(self, _call: HttpCall) -> Response:
        return Response("GOOD", media_type="text/plain")

    async def _ready(self, _call: HttpCall) -> Response:
        if all(monitor.is_ready for monitor in self.clusters.values()):
            return Response("READY", media_type="text/plain")
        return Response("STARTING", 503, media_type="text/plain")

    async def _metrics(self, _call: HttpCall) -> Response:
        return StreamingResponse(scrape(self.clusters), headers={"content-type": CONTENT_TYPE})

    # ---- clusters, topics

    async def _clusters(self, call: HttpCall) -> Response:
        return self._success(call, "cluster list returned", clusters=list(self.clusters))

    async def _cluster(self, call: HttpCall) -> Response:
        monitor = self.clusters.get(call.names["cluster"])
        if monitor is None:
            raise HttpError(404, "cluster module not found")
        return self._success(
            call, "cluster module detail returned", module=burrow_responses.cluster_module(monitor.settings)
        )

    async def _topics(self, call: HttpCall) -> Response:
        monitor = self._monitor(call)
        return self._success(call, "topic list returned", monitor, topics=sorted(monitor.store.topics))

    async def _topic(self, call: HttpCall) -> Response:
        monitor = self._monitor(call, "cluster or topic not found")
        ends = monitor.store.topic_ends(call.names["topic"])
        if ends is None:
            raise HttpError(404, "cluster or topic not found")
        return self._success(call, "topic offsets returned", monitor, offsets=ends)

    async def _topic_consumers(self, call: HttpCall) -> Response:
        monitor = self._ready_monitor(call)
        consumers = monitor.store.consumers_of(call.names["topic"])
        return self._success(call, "consumers of topic returned", monitor, consumers=consumers)

    # ---- groups

    async def _consumers(self, call: HttpCall) -> Response:
        monitor = self._ready_monitor(call)
        return self._success(call, "consumer list returned", monitor, consumers=monitor.groups())

    async def _consumer(self, call: HttpCall) -> Response:
        monitor = self._ready_monitor(call, "cluster or consumer not found")
        group = call.names["consumer"]
        if group not in monitor.groups():
            raise HttpError(404, "cluster or consumer not found")
        topics: dict[str, list[burrow_responses.Fields]] = {}
        owners = monitor.store.owners(group)
        for place, partition in enumerate(list(monitor.store.shown_partitions(group))):
            if place % SLICE == SLICE - 1:
                await asyncio.sleep(0)
                if group not in monitor.store.groups:
                    raise HttpError(404, "cluster or consumer not found")
            owner = owners.get(partition, NO_OWNER)
            shown = burrow_responses.partition_detail(monitor.store, group, partition, owner)
            topics.setdefault(partition.topic, []).append(shown)
        return self._success(call, "consumer detail returned", monitor, topics=topics)

    async def _consumer_status(self, call: HttpCall) -> Response:
        return await self._status(call, with_all=False)

    async def _consumer_lag(self, call: HttpCall) -> Response:
        return await self._status(call, with_all=True)

    async def _status(self, call: HttpCall, *, with_all: bool) -> Response:
        cluster, group = call.names["cluster"], call.names["consumer"]
        monitor = self.clusters.get(cluster)
        verdict = None
        if monitor is not None:
            self._check_ready(monitor)
            verdict = await monitor.verdict_in_slices(group)
        if monitor is None or verdict is None:
            status = burrow_responses.unknown_group_status(cluster, group)
            return self._success(call, "consumer status returned", code=404, status=status)
        if verdict.partition_count <= SLICE:
            return self._status_response(call, monitor, verdict, with_all)
        return await asyncio.to_thread(
            self._status_response, call, monitor, verdict, with_all
        )  # verdicts are immutable

    def _status_response(
        self, call: HttpCall, monitor: ClusterMonitor, verdict: GroupVerdict, with_all: bool
    ) -> Response:
        status = burrow_responses.group_status(verdict, with_all=with_all)
        return self._success(call, "consumer status returned", monitor, status=status)

    async def _delete_consumer(self, call: HttpCall) -> Response:
        self._monitor(call).forget(call.names["consumer"])
        return self._success(call, "consumer group removed")

    # ---- settings, log level, alerts

    async def _config(self, call: HttpCall) -> Response:
        return self._success(
            call,
            "main config returned",
            general={"pidfile": "", "stdout-logfile": "", "access-control-allow-origin": ""},
            logging={
                "filename": "",
                "max-size": 0,
                "max-backups": 0,
                "max-age": 0,
                "use-local-time": False,
                "use-compression": False,
                "level": _level_name(),
            },
            zookeeper={"servers": [], "timeout": 0, "root-path": ""},
            httpserver={burrow_responses.MODULE: self.listener},
        )

    async def _config_list(self, call: HttpCall) -> Response:
        kind = call.names["kind"]
        found = burrow_responses.modules(kind, self.clusters)
        if found is None:
            raise HttpError(404, "invalid request type")
        return self._success(call, "module list returned", coordinator=kind, modules=list(found))

    async def _config_detail(self, call: HttpCall) -> Response:
        kind, name = call.names["kind"], call.names["name"]
        found = burrow_responses.modules(kind, self.clusters)
        if found is None or name not in found:
            raise HttpError(404, f"{kind} module not found" if found is not None else "invalid request type")
        return self._success(call, f"{kind} module detail returned", module=found[name])

    async def _log_level(self, call: HttpCall) -> Response:
        return self._success(call, "log level returned", level=_level_name())

    async def _set_log_level(self, call: HttpCall) -> Response:
        data = await read_body(call.request, BODY_BYTES_MAX, _body_too_large)
        try:
            body = msgspec.json.decode(data)
            wanted = body["level"]
            level = LOG_LEVELS[wanted.lower()]
        except KeyError:
            raise HttpError(404, "unknown log level") from None
        except (msgspec.DecodeError, AttributeError, TypeError, RecursionError, UnicodeError):
            raise HttpError(400, "could not decode message body") from None
        logging.getLogger(LOGGER).setLevel(level)
        return self._success(call, "set log level")

    async def _alerts(self, call: HttpCall) -> Response:
        found = await self.alerts() if self.alerts is not None else {"open": [], "history": []}
        body = {"error": False, "message": "alerts returned", **found, "request": self._request_info(call.path)}
        return _json(body)

    # ---- helpers

    def _monitor(self, call: HttpCall, missing: str = "cluster not found") -> ClusterMonitor:
        monitor = self.clusters.get(call.names["cluster"])
        if monitor is None:
            raise HttpError(404, missing)
        return monitor

    def _ready_monitor(self, call: HttpCall, missing: str = "cluster not found") -> ClusterMonitor:
        monitor = self._monitor(call, missing)
        self._check_ready(monitor)
        return monitor

    def _check_ready(self, monitor: ClusterMonitor) -> None:
        if not monitor.is_ready:
            why = (
                f"the cluster cannot be reached: {monitor.problem}"
                if monitor.problem
                else "commits are still being read"
            )
            raise HttpError(503, f"not ready: {why}")

    def _success(
        self, call: HttpCall, message: str, monitor: ClusterMonitor | None = None, code: int = 200, **fields: object
    ) -> Response:
        body = {"error": False, "message": message, **fields, "request": self._request_info(call.path)}
        answer = _json(body, code)
        age_ms = monitor.age_ms() if monitor is not None else None
        if age_ms is not None:
            answer.headers["age"] = str(age_ms // 1000)
        return answer

    def _request_info(self, path: str) -> dict[str, str]:
        return {"url": path, "host": self.hostname}

    def _check_host(self, request: Request) -> None:
        given = request.headers.getlist("host")
        if len(given) != 1 or not host_name(given[0]):
            raise HttpError(400, "the request needs one Host header")
        if not self.hosts.allows(given[0]):
            raise HttpError(421, "this host is not served here; name it with --allow-host")


def _body_too_large() -> HttpError:
    return HttpError(413, f"the body is larger than {BODY_BYTES_MAX} bytes")


def _level_name() -> str:
    level = logging.getLogger(LOGGER).getEffectiveLevel()
    return LEVEL_NAMES.get(level) or logging.getLevelName(level).lower()


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type=JSON)
