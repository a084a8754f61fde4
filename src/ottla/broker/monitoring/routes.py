"""What the metrics endpoint answers: one table of paths.

/metrics   Prometheus; with ?partitions=true also four numbers of every partition
/jolokia   the same numbers under Kafka's MBean names, as Jolokia's JSON
/healthz   200 while the process is alive
/readyz    200 once every partition is served, 503 before and while it stops

The last two ask for no password, if there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

from ottla.broker.monitoring.http import BadRequestError, HttpAnswer, HttpRequest
from ottla.metrics import jolokia
from ottla.metrics.beans import Source
from ottla.metrics.prometheus import CONTENT_TYPE, Family, render, render_families

JSON: Final = "application/json; charset=utf-8"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})  # for whoever starts and watches processes: no password
INDEX: Final = "/metrics\n/metrics?partitions=true\n/jolokia\n/healthz\n/readyz\n"
JOLOKIA: Final = "/jolokia"


class Numbers(Protocol):
    """Where the numbers come from."""

    @property
    def sources(self) -> Sequence[Source]: ...

    def families(self) -> Iterable[Family | None]:
        """What has no MBean name."""
        ...

    def readiness(self) -> tuple[bool, str]:
        """Whether clients are served, and one line about it."""
        ...


class Routes:
    """Chooses by path and method."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._table: dict[str, Callable[[HttpRequest], HttpAnswer]] = {
            "/": lambda _: HttpAnswer(iter((INDEX,))),
            "/metrics": self._metrics,
            "/healthz": lambda _: HttpAnswer(iter(("ok\n",))),
            "/readyz": self._ready,
        }

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path == JOLOKIA or request.path.startswith(f"{JOLOKIA}/"):
            return self._jolokia(request)
        handler = self._table.get(request.path)
        if handler is None:
            raise BadRequestError(HTTPStatus.NOT_FOUND, "there is nothing here; try /metrics")
        if request.method == "POST":
            raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD here", Allow="GET, HEAD")
        return handler(request)

    def _metrics(self, request: HttpRequest) -> HttpAnswer:
        with_large = request.query.get("partitions", "").lower() in ("true", "1", "yes")

        def pieces() -> Iterable[str]:
            kafkas = [source for source in self._numbers.sources if source.domain.startswith("kafka.")]
            yield from render(kafkas, with_large=with_large)
            yield from render_families(self._numbers.families())

        return HttpAnswer(iter(pieces()), CONTENT_TYPE)

    def _jolokia(self, request: HttpRequest) -> HttpAnswer:
        try:
            asked = self._jolokia_questions(request)
        except jolokia.BadRequestError as problem:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, str(problem)) from None
        return HttpAnswer(jolokia.answer(asked, self._numbers.sources, time.time()), JSON)

    def _jolokia_questions(self, request: HttpRequest) -> list[jolokia.Request] | jolokia.Request:
        if request.method == "POST":
            return jolokia.parse_post(request.body)
        return jolokia.parse_get(request.path.removeprefix(JOLOKIA))

    def _ready(self, _request: HttpRequest) -> HttpAnswer:
        is_ready, line = self._numbers.readiness()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpAnswer(iter((f"{line}\n",)), status=status)

    def __repr__(self) -> str:
        return f"<Routes {', '.join(self._table)}, {JOLOKIA}>"
