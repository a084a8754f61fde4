"""Rows to a web server, as JSON, several in a request: at least once.

Every task sends its rows, one request after the other over one connection. What is about the moment (no connection, no
answer, 408, 429, 5xx) is tried again after growing pauses, or after the time that the server asks for; what is about
the request (any other answer) ends the run with the server's words. A batch that was cut off is sent again as a whole.

Rules:
1. What decides whether and when to try again is pure: no clock, no socket.
2. Headers are never shown, and of the URL not what follows the question mark: secrets stand there.
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
PAUSE_FIRST_SECONDS = 0.5
PAUSE_SECONDS_MAX = 30.0
RETRIED = (408, 429)
REPORT_SCHEMA = "problem string"
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Answer(NamedTuple):
    """What a server said."""

    status: int
    words: str
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class Request:
    """Where and how rows are sent."""

    url: str = field(repr=False)
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    form: Form = "json"
    batch_rows: int = 500
    timeout_seconds: float = 30.0
    retry_seconds: float = 60.0  # all pauses of one request together

    def __post_init__(self) -> None:
        headers = [header_problem(name, value) for name, value in self.headers.items()]
        problem = next(filter(None, [url_problem(self.url), *headers]), None)
        if problem:
            raise SinkError(problem)

    @property
    def shown(self) -> str:
        return self.url.partition("?")[0]


@dataclass(frozen=True)
class HttpSink:
    request: Request

    @property
    def place(self) -> str:
        return self.request.shown

    def write(self, rows: DataFrame, batch: Batch) -> None:  # noqa: ARG002 (the server knows no batches)
        from ottla.pipelines.sinks.encoding import Encoding  # noqa: PLC0415

        request = self.request

        def post(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa  # noqa: PLC0415 (runs in Spark's workers)

            values = (value for batch in batches for value in batch.column(0).to_pylist())
            yield pa.RecordBatch.from_pydict({"problem": pa.array([post_all(values, request)], pa.string())})

        reports = Encoding(format="json").apply(rows).mapInArrow(post, REPORT_SCHEMA).collect()
        problem = next((str(report.problem) for report in reports if report.problem), None)
        if problem:
            raise SinkError(problem)


def post_all(values: Iterator[str], request: Request) -> str | None:
    """What went wrong. It is not raised: Spark would have the task done again, and again."""
    connection = Connection(request)
    try:
        for body in bodies(values, request.form, request.batch_rows):
            send(partial(connection.exchange, body), request, time.sleep)
    except SinkError as problem:
        for _ in values:  # the plan runs to its end all the same
            pass
        return str(problem)
    finally:
        connection.close()
    return None


def bodies(values: Iterable[str], form: Form, batch_rows: int) -> Iterator[bytes]:
    """Requests with not too many rows, and not too large."""
    kept: list[str] = []
    size = 0
    for value in values:
        if kept and (len(kept) == batch_rows or size + len(value) > BODY_BYTES_MAX):
            yield body_of(kept, form)
            kept, size = [], 0
        kept.append(value)
        size += len(value)
    if kept:
        yield body_of(kept, form)


def body_of(values: list[str], form: Form) -> bytes:
    text = f"[{','.join(values)}]" if form == "json" else "".join(f"{value}\n" for value in values)
    return text.encode()


def send(exchange: Callable[[], Answer], request: Request, pause: Callable[[float], None]) -> None:
    """Until the server has taken it. Raises SinkError."""
    paused = 0.0
    attempt = 0
    while True:
        try:
            answer: Answer | Exception = exchange()
        except (OSError, http.client.HTTPException) as problem:
            answer = problem
        seconds = pause_after(answer, request, attempt, paused)
        if seconds is None:
            return
        pause(seconds)
        paused += seconds
        attempt += 1


def pause_after(answer: Answer | Exception, request: Request, attempt: int, paused: float) -> float | None:
    """How long to wait before the next attempt; None if all is well. Raises SinkError when there is to be none."""
    if isinstance(answer, Answer) and 200 <= answer.status < 300:
        return None
    if isinstance(answer, Answer) and answer.status not in RETRIED and answer.status < 500:
        raise SinkError(f"{request.shown} refuses rows: {refusal(answer)}")
    left = request.retry_seconds - paused
    if left <= 0:
        words = said(answer) if isinstance(answer, Answer) else f"no answer: {answer or type(answer).__name__}"
        raise SinkError(f"{request.shown} takes no rows, also after {attempt + 1} attempts: {words}")
    wished = getattr(answer, "retry_after", None) or ""
    seconds = float(wished) if wished.isdigit() else PAUSE_FIRST_SECONDS * 2**attempt
    return min(seconds, PAUSE_SECONDS_MAX, left)


def refusal(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"{answer.status}, it is elsewhere: write the URL {answer.location or 'of the new place'}"
    return f"{said(answer)}; send fewer with batch_rows" if answer.status == 413 else said(answer)


def said(answer: Answer) -> str:
    return f"{answer.status} {answer.words}".strip()


class Connection:
    """To one server; opened when it is needed, and again after it broke."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._parts = urlsplit(request.url)
        self._open: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"Connection({self._request.shown}, {'open' if self._open else 'closed'})"

    def exchange(self, body: bytes) -> Answer:
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
        return Answer(answer.status, words, answer.getheader("Retry-After"), answer.getheader("Location"))

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
        parts.port  # noqa: B018 (only looking tells)
    except ValueError as problem:
        return f"{url.partition('?')[0]}: {problem}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{url.partition('?')[0]!r} is no address of a web server: http://host/path, or https"
    if parts.username is not None:
        return "a name and a password do not belong into the URL: write headers: {Authorization: Basic ${…}}"
    if re.search(r"[\s\x00-\x1f\x7f]", url) or not url.isascii():
        return "the URL has characters that must be written with %"
    return None


def header_problem(name: str, value: str) -> str | None:
    if not HEADER_NAME.fullmatch(name):
        return f"{name!r} is no name of a header"
    is_clean = not re.search(r"[\x00-\x1f\x7f]", value) and value.isascii()
    return None if is_clean else f"the header {name} has characters that cannot be sent"
