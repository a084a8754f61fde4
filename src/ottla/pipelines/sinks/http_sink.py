"""Rows to a web server as JSON, several per request: at least once.

Every task sends its rows one request at a time over one connection. Transient failures (no connection, no answer, 408,
429, 5xx) are retried with growing pauses, or after the server's Retry-After. Any other error status ends the run with
the server's message. An interrupted batch is sent again as a whole.

Rules:
1. Retry decisions are pure: no clock, no socket.
2. Headers and the query of the URL are never shown: they may contain secrets.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ottla.pipelines.sinks.batch import Batch, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Form = Literal["json", "json-lines"]

CONTENT_TYPES: dict[Form, str] = {"json": "application/json", "json-lines": "application/x-ndjson"}
BODY_BYTES_MAX = 1_000_000
ANSWER_BYTES_MAX = 65_536
ANSWER_SHOWN_MAX = 200
RETRY_BACKOFF_SECONDS = 0.5
RETRY_BACKOFF_SECONDS_MAX = 30.0
RETRIABLE_STATUSES = (408, 429)
REPORT_SCHEMA = "problem string"
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpResponse(NamedTuple):
    """The response of a server."""

    status: int
    words: str
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class HttpRequest:
    """The target and the form of requests."""

    url: str = field(repr=False)
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    form: Form = "json"
    batch_rows: int = 500
    timeout_seconds: float = 30.0
    retry_seconds: float = 60.0  # total pause of one request

    def __post_init__(self) -> None:
        headers = [header_problem(name, value) for name, value in self.headers.items()]
        problem = next(filter(None, [url_problem(self.url), *headers]), None)
        if problem:
            raise SinkError(problem)

    @property
    def display_url(self) -> str:
        return self.url.partition("?")[0]


@dataclass(frozen=True)
class HttpSink:
    request: HttpRequest

    @property
    def place(self) -> str:
        return self.request.display_url

    def write(self, rows: DataFrame, batch: Batch) -> None:  # # noqa: ARG002 (the server has no notion of batches)
        from ottla.pipelines.sinks.encoding import Encoding  # noqa: PLC0415

        request = self.request

        def post(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa  # noqa: PLC0415 (runs in Spark's workers)

            values = (value for batch in batches for value in batch.column(0).to_pylist())
            yield pa.RecordBatch.from_pydict({"problem": pa.array([post_rows(values, request)], pa.string())})

        reports = Encoding(format="json").apply(rows).mapInArrow(post, REPORT_SCHEMA).collect()
        problem = next((str(report.problem) for report in reports if report.problem), None)
        if problem:
            raise SinkError(problem)


def post_rows(values: Iterator[str], request: HttpRequest) -> str | None:
    """Return the error. It is not raised, because Spark would retry the task."""
    connection = Connection(request)
    try:
        for body in split_bodies(values, request.form, request.batch_rows):
            send_with_retries(partial(connection.exchange, body), request, time.sleep)
    except SinkError as problem:
        for _ in values:  # let the plan run to its end
            pass
        return str(problem)
    finally:
        connection.close()
    return None


def split_bodies(values: Iterable[str], form: Form, batch_rows: int) -> Iterator[bytes]:
    """Requests with a bounded number of rows and bytes."""
    kept: list[str] = []
    size = 0
    for value in values:
        if kept and (len(kept) == batch_rows or size + len(value) > BODY_BYTES_MAX):
            yield encode_body(kept, form)
            kept, size = [], 0
        kept.append(value)
        size += len(value)
    if kept:
        yield encode_body(kept, form)


def encode_body(values: list[str], form: Form) -> bytes:
    text = f"[{','.join(values)}]" if form == "json" else "".join(f"{value}\n" for value in values)
    return text.encode()


def send_with_retries(
    exchange: Callable[[], HttpResponse], request: HttpRequest, pause: Callable[[float], None]
) -> None:
    """Retry until the server accepts. Raises SinkError."""
    paused = 0.0
    attempt = 0
    while True:
        try:
            answer: HttpResponse | Exception = exchange()
        except (OSError, http.client.HTTPException) as problem:
            answer = problem
        seconds = retry_delay(answer, request, attempt, paused)
        if seconds is None:
            return
        pause(seconds)
        paused += seconds
        attempt += 1


def retry_delay(answer: HttpResponse | Exception, request: HttpRequest, attempt: int, paused: float) -> float | None:
    """Seconds before the next attempt; None on success. Raises SinkError if there is none."""
    if isinstance(answer, HttpResponse) and 200 <= answer.status < 300:
        return None
    if isinstance(answer, HttpResponse) and answer.status not in RETRIABLE_STATUSES and answer.status < 500:
        raise SinkError(f"{request.display_url} refuses rows: {rejection_text(answer)}")
    left = request.retry_seconds - paused
    if left <= 0:
        words = (
            status_text(answer) if isinstance(answer, HttpResponse) else f"no answer: {answer or type(answer).__name__}"
        )
        raise SinkError(f"{request.display_url} accepts no rows after {attempt + 1} attempts: {words}")
    wished = getattr(answer, "retry_after", None) or ""
    seconds = float(wished) if wished.isdigit() else RETRY_BACKOFF_SECONDS * 2**attempt
    return min(seconds, RETRY_BACKOFF_SECONDS_MAX, left)


def rejection_text(answer: HttpResponse) -> str:
    if 300 <= answer.status < 400:
        return f"{answer.status}, moved: use the URL {answer.location or 'of the new location'}"
    return f"{status_text(answer)}; use a smaller batch_rows" if answer.status == 413 else status_text(answer)


def status_text(answer: HttpResponse) -> str:
    return f"{answer.status} {answer.words}".strip()


class Connection:
    """A connection to one server; opened on first use and after errors."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._parts = urlsplit(request.url)
        self._open: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"Connection({self._request.display_url}, {'open' if self._open else 'closed'})"

    def exchange(self, body: bytes) -> HttpResponse:
        """Raises OSError, HTTPException."""
        if self._open is None:
            self._open = connect(self._parts, self._request.timeout_seconds)
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        headers = {"Content-Type": CONTENT_TYPES[self._request.form], **self._request.headers}
        try:
            self._open.request(self._request.method, target, body, headers)
            answer = self._open.getresponse()
            text = answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if answer.will_close or not answer.isclosed():
            self.close()
        words = " ".join(f"{answer.reason} {text.decode(errors='replace')[:ANSWER_SHOWN_MAX]}".split())
        return HttpResponse(answer.status, words, answer.getheader("Retry-After"), answer.getheader("Location"))

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def connect(parts: SplitResult, timeout_seconds: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    assert parts.hostname is not None
    return kind(parts.hostname, parts.port, timeout=timeout_seconds)


def url_problem(url: str) -> str | None:
    parts = urlsplit(url)
    try:
        parts.port  # # noqa: B018 (parsing may raise)
    except ValueError as problem:
        return f"{url.partition('?')[0]}: {problem}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{url.partition('?')[0]!r} is not the address of a web server: http://host/path, or https"
    if parts.username is not None:
        return "name and password do not belong in the URL: use headers: {Authorization: Basic ${…}}"
    if re.search(r"[\s\x00-\x1f\x7f]", url) or not url.isascii():
        return "the URL has characters that must be percent-encoded"
    return None


def header_problem(name: str, value: str) -> str | None:
    if not HEADER_NAME.fullmatch(name):
        return f"{name!r} is not a valid header name"
    is_clean = not re.search(r"[\x00-\x1f\x7f]", value) and value.isascii()
    return None if is_clean else f"the header {name} has characters that cannot be sent"
