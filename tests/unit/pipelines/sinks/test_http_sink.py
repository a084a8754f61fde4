"""Rows to a web server: retries, pauses, and errors that end the run."""

import json
from collections.abc import Callable

import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.http_sink import (
    BODY_BYTES_MAX,
    HttpRequest,
    HttpResponse,
    HttpSink,
    send_with_retries,
    split_bodies,
)

GONE = ConnectionRefusedError(111, "Connection refused")
GOOD = HttpResponse(204, "No Content")


def request(**changes: object) -> HttpRequest:
    return HttpRequest("https://h.example/in?key=secret", **changes)  # type: ignore[arg-type]


def pauses(*answers: HttpResponse | Exception, **changes: object) -> list[float]:
    """The pauses between these responses of a server."""
    left, waited = list(answers), list[float]()

    def exchange() -> HttpResponse:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    send_with_retries(exchange, request(**changes), waited.append)
    assert not left
    return waited


def test_transient_errors_are_retried_after_growing_pauses() -> None:
    busy = [HttpResponse(status, "busy") for status in (408, 429, 500, 503)]
    assert pauses(GOOD) == []
    assert pauses(GONE, *busy, TimeoutError("timed out"), GOOD) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_server_may_say_how_long_to_wait_but_not_for_ever() -> None:
    assert pauses(HttpResponse(429, "slow", "7"), HttpResponse(503, "x", "9999"), GOOD) == [7.0, 30.0]
    assert pauses(HttpResponse(503, "x", "Wed, 21 Oct 2026 07:28:00 GMT"), GOOD) == [0.5]


def test_at_some_time_it_is_enough() -> None:
    with pytest.raises(SinkError) as caught:
        pauses(*[HttpResponse(503, "Service Unavailable: out of disk")] * 9, retry_seconds=10)
    words = "https://h.example/in accepts no rows after 6 attempts: 503 Service Unavailable: out of disk"
    assert str(caught.value) == words
    with pytest.raises(SinkError, match=r"no answer: .* Connection refused"):
        pauses(GONE, retry_seconds=0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HttpResponse(401, "Unauthorized no token"), "refuses rows: 401 Unauthorized no token"),
        (HttpResponse(422, "column 'n' is no number"), "refuses rows: 422 column 'n' is no number"),
        (HttpResponse(413, "Too Large"), "refuses rows: 413 Too Large; use a smaller batch_rows"),
        (HttpResponse(301, "", None, "https://new/"), "refuses rows: 301, moved: use the URL https://new/"),
    ],
)
def test_a_rejected_request_ends_the_run_with_the_servers_message(answer: HttpResponse, words: str) -> None:
    with pytest.raises(SinkError) as caught:
        pauses(answer)
    assert str(caught.value) == f"https://h.example/in {words}"


def test_requests_have_not_too_many_rows_and_are_not_too_large() -> None:
    rows = [json.dumps({"n": number}) for number in range(7)]
    found = [json.loads(body) for body in split_bodies(rows, "json", 3)]
    assert [len(each) for each in found] == [3, 3, 1]
    assert [row for each in found for row in each] == [{"n": number} for number in range(7)]
    assert list(split_bodies(rows[:2], "json-lines", 3)) == [b'{"n": 0}\n{"n": 1}\n']
    assert len(list(split_bodies(["x" * (BODY_BYTES_MAX // 2 + 1)] * 3, "json", 500))) == 3
    assert list(split_bodies([], "json", 3)) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HttpRequest("h.example/in"), "is not the address of a web server"),
        (lambda: HttpRequest("http://:80/in"), "is not the address of a web server"),
        (lambda: HttpRequest("http://h:99999/"), "Port out of range"),
        (lambda: HttpRequest("http://me:secret@h/"), "name and password do not belong in the URL"),
        (lambda: HttpRequest("http://h/a b"), "must be percent-encoded"),
        (lambda: request(headers={"X": "a\nHost: other"}), "the header X has characters that cannot be sent"),
        (lambda: request(headers={"X Y": "a"}), "'X Y' is not a valid header name"),
    ],
)
def test_invalid_requests_are_refused_before_they_are_sent(make: Callable[[], HttpRequest], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        make()


def test_secrets_are_never_shown() -> None:
    sink = HttpSink(request(headers={"Authorization": "Bearer secret"}))
    assert "secret" not in repr(sink)
    assert sink.place == "https://h.example/in"
