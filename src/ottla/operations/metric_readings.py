"""Reads a broker's metrics endpoint: Prometheus' text, as far as ottla itself writes it."""

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
VARIABLE: Final = "OTTLA_METRICS_URL"

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
SEVERAL: Final = "ottla_process_up"  # only on the page of all brokers of a machine (ottla broker --processes)
TOPIC_LABEL: Final = 'topic="'
PIECE_BYTES: Final = 256 * 1024
TIMEOUT_SECONDS: Final = 10.0
PATH: Final = "/metrics"
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)",?')


CURE: Final = (
    "`ottla up` opens a metrics endpoint by itself; any other broker needs ottla.metrics.port=9404 in its settings. "
    "Another address: --url URL"
)


class PasswordNeededError(OperationError):
    """The endpoint wants to know who asks."""


class Sample(NamedTuple):
    """One number of a name."""

    labels: dict[str, str]
    value: float


class Reading:
    """All numbers at one moment."""

    def __init__(self, samples: dict[str, list[Sample]], taken_s: float) -> None:
        self.samples = samples
        self.taken_s = taken_s

    def all(self, name: str, **labels: str) -> Iterator[Sample]:
        """The samples of a name that have these labels, and maybe others."""
        wanted = labels.items()
        return (sample for sample in self.samples.get(name, ()) if wanted <= sample.labels.items())

    def one(self, name: str, **labels: str) -> float:
        """The number of exactly these labels; 0 if there is none."""
        return next((sample.value for sample in self.samples.get(name, ()) if sample.labels == labels), 0.0)

    def total(self, name: str, **labels: str) -> float:
        return sum(sample.value for sample in self.all(name, **labels))

    def known(self, name: str, **labels: str) -> float | None:
        """The number of exactly these labels; None if it was not told."""
        return next((sample.value for sample in self.samples.get(name, ()) if sample.labels == labels), None)

    def info(self) -> dict[str, str]:
        return next((sample.labels for sample in self.samples.get("ottla_info", ())), {})

    def __repr__(self) -> str:
        return f"<Reading {len(self.samples)} names>"


class Rates:
    """How fast counters of one broker grew between two readings, per second.

    None is what nobody knows: a counter that is not told, or that has fallen, because the broker was started again. One
    that was not told before began at 0: counters are told from their first event on.
    """

    def __init__(self, before: Reading, now: Reading) -> None:
        self.before = before
        self.now = now
        self.seconds = max(0.001, now.taken_s - before.taken_s)

    def of(self, name: str, **labels: str) -> float | None:
        """Of the counter with exactly these labels."""
        value = self.now.known(name, **labels)
        return None if value is None else self._rate(value - self.before.one(name, **labels))

    def total(self, name: str, **labels: str) -> float | None:
        """Of all counters that have these labels together."""
        if next(self.now.all(name, **labels), None) is None:
            return None
        return self._rate(self.now.total(name, **labels) - self.before.total(name, **labels))

    def _rate(self, growth: float) -> float | None:
        return growth / self.seconds if growth >= 0 else None

    def __repr__(self) -> str:
        return f"<Rates over {self.seconds:.1f} s>"


def read_metrics(
    url: str, cure: str = CURE, seconds_max: float = TIMEOUT_SECONDS, wanted: tuple[str, ...] = ()
) -> Reading:
    """What an ottla broker's endpoint tells now."""
    reading = parse_metrics(ask_page(url, PATH, cure, seconds_max=seconds_max), time.monotonic(), wanted)
    if "ottla_info" not in reading.samples and SEVERAL not in reading.samples:
        raise OperationError(f"{url.rpartition('@')[2]} is not the metrics endpoint of an ottla broker")
    if several := reading.samples.get(SEVERAL):
        own = ", ".join(f"{each.labels.get('url')} (broker {each.labels.get('broker')})" for each in several)
        raise OperationError(f"{url.rpartition('@')[2]} tells the metrics of several brokers; ask one of them: {own}")
    return reading


def read_page(url: str) -> str:
    """Ask the endpoint; OperationError says what is in the way, and the cure. A password in the URL is never told."""
    return ask_page(url, PATH, CURE)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Whoever answers at an address must not lead us, and a password, to another one."""

    def redirect_request(self, *_: object) -> None:
        return None


def ask_page(url: str, path: str, cure: str, body: bytes | None = None, seconds_max: float = TIMEOUT_SECONDS) -> str:
    """The page `path` of an endpoint, by POST if there is a body, if all of it comes in time."""
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
            return _all_of(answer, time.monotonic() + seconds_max).decode("utf-8", "replace")
    except urllib.error.HTTPError as problem:
        if problem.code == HTTPStatus.UNAUTHORIZED:
            words = f"{address} wants a password: {VARIABLE}={scheme}://NAME:PASSWORD@{place}"
            raise PasswordNeededError(words) from None
        raise OperationError(
            f"{address} answers {problem.code} {problem.reason}: that is no metrics endpoint"
        ) from None
    except (OSError, ValueError, HTTPException) as problem:
        cause = getattr(problem, "reason", problem)
        cause = getattr(cause, "strerror", None) or cause
        raise OperationError(f"nobody answers at {address} ({str(cause).lower()}). {cure}".strip()) from None


def _all_of(answer: HTTPResponse, deadline_s: float) -> bytes:
    """A socket's timeout is one for each piece: whoever sends a byte now and then would keep us for ever."""
    pieces, size = [], 0
    while piece := answer.read1(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise ValueError("it sends more than any broker does")
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
    return b"".join(pieces)


def parse_metrics(text: str, taken_s: float, wanted: tuple[str, ...] = ()) -> Reading:
    """All numbers, or those whose names begin with what is wanted, and which are not of a single topic."""
    samples: dict[str, list[Sample]] = {}
    for line in text.split("\n"):  # nothing else ends a line there: names of clients hold what they like
        if wanted and (not line.startswith(wanted) or TOPIC_LABEL in line):
            continue
        match = _SAMPLE.fullmatch(line) if not line.startswith("#") else None
        if match is not None:
            labels = {key: _unescape(value) for key, value in _LABEL.findall(match[2] or "")}
            samples.setdefault(match[1], []).append(Sample(labels, float(match[3])))
    return Reading(samples, taken_s)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)
