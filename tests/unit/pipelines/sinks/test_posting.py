"""Rows to a web server: what is tried again, when, and what ends the run."""

import json
from collections.abc import Callable

import pytest

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.posting import BODY_BYTES_MAX, Answer, HttpSink, Request, bodies, send

GONE = ConnectionRefusedError(111, "Connection refused")
GOOD = Answer(204, "No Content")


def request(**changes: object) -> Request:
    return Request("https://h.example/in?key=secret", **changes)  # type: ignore[arg-type]


def pauses(*answers: Answer | Exception, **changes: object) -> list[float]:
    """The pauses between these answers of a server."""
    left, waited = list(answers), list[float]()

    def exchange() -> Answer:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    send(exchange, request(**changes), waited.append)
    assert not left
    return waited


def test_what_is_about_the_moment_is_tried_again_after_growing_pauses() -> None:
    busy = [Answer(status, "busy") for status in (408, 429, 500, 503)]
    assert pauses(GOOD) == []
    assert pauses(GONE, *busy, TimeoutError("timed out"), GOOD) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_server_may_say_how_long_to_wait_but_not_for_ever() -> None:
    assert pauses(Answer(429, "slow", "7"), Answer(503, "x", "9999"), GOOD) == [7.0, 30.0]
    assert pauses(Answer(503, "x", "Wed, 21 Oct 2026 07:28:00 GMT"), GOOD) == [0.5]


def test_at_some_time_it_is_enough() -> None:
    with pytest.raises(SinkError) as caught:
        pauses(*[Answer(503, "Service Unavailable: out of disk")] * 9, retry_seconds=10)
    words = "https://h.example/in takes no rows, also after 6 attempts: 503 Service Unavailable: out of disk"
    assert str(caught.value) == words
    with pytest.raises(SinkError, match=r"no answer: .* Connection refused"):
        pauses(GONE, retry_seconds=0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(401, "Unauthorized no token"), "refuses rows: 401 Unauthorized no token"),
        (Answer(422, "column 'n' is no number"), "refuses rows: 422 column 'n' is no number"),
        (Answer(413, "Too Large"), "refuses rows: 413 Too Large; send fewer with batch_rows"),
        (Answer(301, "", None, "https://new/"), "refuses rows: 301, it is elsewhere: write the URL https://new/"),
    ],
)
def test_what_is_about_the_request_ends_the_run_with_the_words_of_the_server(answer: Answer, words: str) -> None:
    with pytest.raises(SinkError) as caught:
        pauses(answer)
    assert str(caught.value) == f"https://h.example/in {words}"


def test_requests_have_not_too_many_rows_and_are_not_too_large() -> None:
    rows = [json.dumps({"n": number}) for number in range(7)]
    found = [json.loads(body) for body in bodies(rows, "json", 3)]
    assert [len(each) for each in found] == [3, 3, 1]
    assert [row for each in found for row in each] == [{"n": number} for number in range(7)]
    assert list(bodies(rows[:2], "json-lines", 3)) == [b'{"n": 0}\n{"n": 1}\n']
    assert len(list(bodies(["x" * (BODY_BYTES_MAX // 2 + 1)] * 3, "json", 500))) == 3
    assert list(bodies([], "json", 3)) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Request("h.example/in"), "is no address of a web server"),
        (lambda: Request("http://:80/in"), "is no address of a web server"),
        (lambda: Request("http://h:99999/"), "Port out of range"),
        (lambda: Request("http://me:secret@h/"), "a name and a password do not belong into the URL"),
        (lambda: Request("http://h/a b"), "must be written with %"),
        (lambda: request(headers={"X": "a\nHost: other"}), "the header X has characters that cannot be sent"),
        (lambda: request(headers={"X Y": "a"}), "'X Y' is no name of a header"),
    ],
)
def test_what_cannot_be_sent_is_told_before(make: Callable[[], Request], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        make()


def test_secrets_are_never_shown() -> None:
    sink = HttpSink(request(headers={"Authorization": "Bearer secret"}))
    assert "secret" not in repr(sink)
    assert sink.place == "https://h.example/in"
