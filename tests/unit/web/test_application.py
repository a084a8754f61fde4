"""Limits of bodies, and errors of applications, without a socket."""

import json
import logging

import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.unit.web.http_calls import ask
from tests.virtual_time import run

from ottla.web.application import HttpApp, read_body
from ottla.web.errors import HttpError

MOST, DISCARDED_MOST = 10, 30


class LengthApp(HttpApp):
    """Answers the length of the body."""

    async def answer(self, request: Request) -> Response:
        if request.scope["path"] == "/broken":
            raise ZeroDivisionError
        body = await read_body(request, MOST, lambda: HttpError(413, "too large"), discarded_most=DISCARDED_MOST)
        return Response(str(len(body)))

    def error_response(self, request: Request, problem: HttpError) -> Response:
        return Response(json.dumps({"message": problem.message}), problem.status, problem.headers)


def pieces_read(sizes: list[int], *, is_disconnected: bool = False) -> tuple[int | None, int]:
    """The status of the response to a body in pieces (None: no response), and how many pieces were read."""
    sent: list[int] = []
    count = 0

    async def receive() -> dict[str, object]:
        nonlocal count
        if is_disconnected and count == len(sizes):
            return {"type": "http.disconnect"}
        count += 1
        has_more = is_disconnected or count < len(sizes)
        return {"type": "http.request", "body": b"x" * sizes[count - 1], "more_body": has_more}

    async def send(message: dict[str, int]) -> None:
        sent.append(message.get("status", 0))

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    run(LengthApp()(scope, receive, send))  # type: ignore[arg-type]  # narrower messages
    return (sent[0] if sent else None), count


@pytest.mark.parametrize(
    ("sizes", "status", "read"),
    [
        ([MOST], 200, 1),
        ([6, 4], 200, 2),
        ([6, 5, 1], 413, 3),  # read to its end, so that the client gets the response
        ([6, 5, 19, 1, 1], 413, 4),  # longer than what is discarded
        ([6, 5, 20, 1], 413, 3),
    ],
)
def test_a_body_is_read_up_to_its_limit(sizes: list[int], status: int, read: int) -> None:
    assert pieces_read(sizes) == (status, read)


def test_a_declared_length_is_refused_before_the_body_is_read() -> None:
    assert ask(LengthApp(), "/", "POST", b"", content_length=str(DISCARDED_MOST)).status == 200
    assert ask(LengthApp(), "/", "POST", b"", content_length=str(DISCARDED_MOST + 1)).status == 413


def test_a_client_that_disconnects_gets_no_response() -> None:
    assert pieces_read([1], is_disconnected=True) == (None, 1)


def test_an_unexpected_error_is_logged_and_answered_in_the_form_of_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = ask(LengthApp(), "/broken")
    assert (answer.status, answer.json) == (500, {"message": "Internal Server Error"})
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "GET /broken failed" in caplog.text
