"""Reads a broker's Prometheus endpoint, in the subset of the text format that ottla writes."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Final, NamedTuple
from urllib.parse import unquote

from ottla.operations.errors import OperationError

METRICS_PORT: Final = 9404
DEFAULT_URL: Final = f"http://127.0.0.1:{METRICS_PORT}"
URL_VARIABLE: Final = "OTTLA_METRICS_URL"

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
# only in the combined metrics of all brokers of a machine (ottla broker --processes)
PROCESS_UP_METRIC: Final = "ottla_process_up"
TOPIC_LABEL: Final = 'topic="'
CHUNK_BYTES: Final = 256 * 1024
TIMEOUT_SECONDS: Final = 10.0
PATH: Final = "/metrics"
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)",?')


REMEDY: Final = (
    "`ottla up` opens a metrics endpoint by itself; any other broker needs ottla.metrics.port=9404 in its settings. "
    "Another address: --url URL"
)


class PasswordNeededError(OperationError):
    """The endpoint requires a login."""


class Sample(NamedTuple):
    """One value of a metric, with its labels."""

    labels: dict[str, str]
    value: float


class Reading:
    """All metrics at one moment."""

    def __init__(self, samples: dict[str, list[Sample]], taken_s: float) -> None:
        self.samples = samples
        self.taken_s = taken_s

    def samples_of(self, name: str, **labels: str) -> Iterator[Sample]:
        """The samples of a metric that have at least these labels."""
        wanted = labels.items()
        return (sample for sample in self.samples.get(name, ()) if wanted <= sample.labels.items())

    def value_or_zero(self, name: str, **labels: str) -> float:
        """The value with exactly these labels; 0 if there is none."""
        return next((sample.value for sample in self.samples.get(name, ()) if sample.labels == labels), 0.0)

    def total(self, name: str, **labels: str) -> float:
        return sum(sample.value for sample in self.samples_of(name, **labels))

    def value_or_none(self, name: str, **labels: str) -> float | None:
        """The value with exactly these labels; None if it is not reported."""
        return next((sample.value for sample in self.samples.get(name, ()) if sample.labels == labels), None)

    def info(self) -> dict[str, str]:
        return next((sample.labels for sample in self.samples.get("ottla_info", ())), {})

    def __repr__(self) -> str:
        return f"<Reading {len(self.samples)} names>"


class Rates:
    """Growth of counters between two readings, per second.

    A rate is None if the counter is not reported or has fallen because the broker restarted. A counter that was missing
    before started at 0: counters are reported from their first event on.
    """

    def __init__(self, before: Reading, now: Reading) -> None:
        self.before = before
        self.now = now
        self.seconds = max(0.001, now.taken_s - before.taken_s)

    def rate(self, name: str, **labels: str) -> float | None:
        """The rate of the counter with exactly these labels."""
        value = self.now.value_or_none(name, **labels)
        return None if value is None else self._rate(value - self.before.value_or_zero(name, **labels))

    def total_rate(self, name: str, **labels: str) -> float | None:
        """The sum over all counters with at least these labels."""
        if next(self.now.samples_of(name, **labels), None) is None:
            return None
        return self._rate(self.now.total(name, **labels) - self.before.total(name, **labels))

    def _rate(self, growth: float) -> float | None:
        return growth / self.seconds if growth >= 0 else None

    def __repr__(self) -> str:
        return f"<Rates over {self.seconds:.1f} s>"


def read_metrics(
    url: str, remedy: str = REMEDY, seconds_max: float = TIMEOUT_SECONDS, prefixes: tuple[str, ...] = ()
) -> Reading:
    """The current metrics of an ottla broker."""
    reading = parse_metrics(read_url(url, PATH, remedy, seconds_max=seconds_max), time.monotonic(), prefixes)
    if "ottla_info" not in reading.samples and PROCESS_UP_METRIC not in reading.samples:
        raise OperationError(f"{url.rpartition('@')[2]} is not the metrics endpoint of an ottla broker")
    if several := reading.samples.get(PROCESS_UP_METRIC):
        own = ", ".join(f"{each.labels.get('url')} (broker {each.labels.get('broker')})" for each in several)
        raise OperationError(f"{url.rpartition('@')[2]} has the metrics of several brokers; use one of them: {own}")
    return reading


def read_page(url: str) -> str:
    """The text of the endpoint; OperationError has cause and remedy. Passwords in the URL are never printed."""
    return read_url(url, PATH, REMEDY)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect must not send us, and a password, to another address."""

    def redirect_request(self, *_: object) -> None:
        return None


def read_url(url: str, path: str, remedy: str, body: bytes | None = None, seconds_max: float = TIMEOUT_SECONDS) -> str:
    """The page `path` of an endpoint, by POST if there is a body, bounded in size and time."""
    scheme, separator, rest = url.rpartition("://")
    if not separator or scheme not in ("http", "https"):
        raise OperationError(f"{url} is not the address of a metrics endpoint: it begins with http:// or https://")
    login, _, place = rest.rpartition("@")
    bare = f"{scheme}://{place}"
    address = bare.rstrip("/") if bare.rstrip("/").endswith(path) else bare.rstrip("/") + path
    request = urllib.request.Request(address, body)  # noqa: S310 (checked above)
    if login:
        request.add_unredirected_header("Authorization", f"Basic {b64encode(unquote(login).encode()).decode()}")
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=seconds_max) as answer:
            return _read_body(answer, time.monotonic() + seconds_max).decode("utf-8", "replace")
    except urllib.error.HTTPError as problem:
        if problem.code == HTTPStatus.UNAUTHORIZED:
            words = f"{address} requires a password: {URL_VARIABLE}={scheme}://NAME:PASSWORD@{place}"
            raise PasswordNeededError(words) from None
        raise OperationError(
            f"{address} answers {problem.code} {problem.reason}: it is not a metrics endpoint"
        ) from None
    except (OSError, ValueError, HTTPException) as problem:
        cause = getattr(problem, "reason", problem)
        cause = getattr(cause, "strerror", None) or cause
        raise OperationError(f"no response from {address} ({str(cause).lower()}). {remedy}".strip()) from None


def _read_body(answer: HTTPResponse, deadline_s: float) -> bytes:
    """Read the body up to a deadline. The socket timeout restarts with each chunk, so slow data could take for ever."""
    pieces, size = [], 0
    while piece := answer.read1(CHUNK_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise ValueError("the response is larger than any broker's")
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
    return b"".join(pieces)


def parse_metrics(text: str, taken_s: float, prefixes: tuple[str, ...] = ()) -> Reading:
    """All samples, or those whose names have one of the prefixes `wanted` and that are not of a single topic."""
    samples: dict[str, list[Sample]] = {}
    for line in text.split("\n"):  # only \n ends a line: client names may contain other separators
        if prefixes and (not line.startswith(prefixes) or TOPIC_LABEL in line):
            continue
        match = _SAMPLE.fullmatch(line) if not line.startswith("#") else None
        if match is not None:
            labels = {key: _unescape(value) for key, value in _LABEL.findall(match[2] or "")}
            samples.setdefault(match[1], []).append(Sample(labels, float(match[3])))
    return Reading(samples, taken_s)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)
