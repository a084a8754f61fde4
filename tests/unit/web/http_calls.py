"""Calls an ASGI application like a client, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.virtual_time import run


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(app: Callable[..., Any], path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """Header names with _ for -; the default host is localhost."""

    async def main() -> Answer:
        return await ask_on_loop(app, path, method, body, **headers)

    return run(main())


async def ask_on_loop(
    app: Callable[..., Any], path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> Answer:
    sent: list[dict[str, Any]] = []
    given = {"host": "localhost:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
    }

    given_body = False

    async def receive() -> dict[str, Any]:
        nonlocal given_body
        if given_body:
            await asyncio.sleep(1_000_000)  # the client stays connected
        given_body = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    found = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(start["status"], {key.decode(): value.decode() for key, value in start["headers"]}, found)
