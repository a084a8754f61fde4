"""The base of an ASGI application: each request gets one response, errors included."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, ClassVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ottla.web.errors import HttpError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON = "application/json"


class HttpApp(ABC):
    """An application. A subclass answers requests and gives errors their form."""

    headers: ClassVar[Headers] = [(b"x-content-type-options", b"nosniff")]  # of every response
    internal_error: ClassVar[HttpError] = HttpError(500, "Internal Server Error")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self.reply(Request(scope, receive))
        if response is not None:
            await response(scope, receive, send)

    async def reply(self, request: Request) -> Response | None:
        """The response to a request; None: the client has disconnected."""
        try:
            response = await self.answer(request)
        except HttpError as problem:
            response = self.error_response(request, problem)
        except ClientDisconnect:
            return None
        except Exception:
            logger = logging.getLogger(type(self).__module__)
            logger.exception("%s %s failed", request.method, raw_path(request).decode(errors="replace"))
            response = self.error_response(request, self.internal_error)
        response.raw_headers.extend(self.headers)
        return response

    @abstractmethod
    async def answer(self, request: Request) -> Response:
        """The response to a request. Raises HttpError."""

    @abstractmethod
    def error_response(self, request: Request, problem: HttpError) -> Response: ...


def raw_path(request: Request) -> bytes:
    """The path as sent, with its %-escapes."""
    path: bytes | None = request.scope.get("raw_path")
    return path or request.scope["path"].encode()


async def read_body(
    request: Request, most: int, too_large: Callable[[], HttpError], *, discarded_most: int = 0
) -> bytes:
    """The body of at most `most` bytes. Raises the error `too_large`, and ClientDisconnect.

    A larger one is read and discarded first, up to `discarded_most` bytes: a client that is still sending does not
    read the response.
    """
    limit = max(most, discarded_most)
    for name, value in request.scope["headers"]:
        if name == b"content-length" and int(value) > limit:  # h11 has checked that it is a number
            raise too_large()
    size, pieces = 0, []
    has_more = True
    while has_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        has_more = message.get("more_body", False)
        size += len(piece)
        if size <= most:
            pieces.append(piece)
            continue
        pieces.clear()
        if size > limit or not has_more:
            raise too_large()
    return b"".join(pieces)
