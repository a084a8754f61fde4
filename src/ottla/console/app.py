"""The door of the console: every request passes here, and every answer gets its headers here.

Rules:
1. A request names a host that we serve (DNS rebinding), else 421. A change comes from our own pages or from a program:
   a foreign Origin is refused, and so is what a browser says comes from elsewhere; under /api that goes for reading,
   too: another's page, which could not see the answer, could still start searches.
2. Every answer forbids scripts, frames and connections other than our own; there are no exceptions.
3. What stands under /api is JSON, errors among it. Anything else is a file of ours or one of the pages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.api.dispatch import Dispatcher, error_response
from ottla.console.api.errors import ApiError, not_found
from ottla.console.api.routing import GET, Table
from ottla.console.assets import Assets
from ottla.console.hosts import Hosts

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger(__name__)
SAFE = ("GET", "HEAD")
API = b"/api/"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
        "require-trusted-types-for 'script'; trusted-types ottla"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Addresses that people open. The pages' own router (pages/routes.js) knows the same ones.
PAGES = (
    "/",
    "/sign-in",
    "/clusters",
    "/people",
    "/audit",
    "/account",
    "/c/{cluster}",
    "/c/{cluster}/topics",
    "/c/{cluster}/topics/{topic}",
    "/c/{cluster}/topics/{topic}/{view}",
    "/c/{cluster}/groups",
    "/c/{cluster}/groups/{group}",
    "/c/{cluster}/groups/{group}/{view}",
    "/c/{cluster}/transactions",
    "/c/{cluster}/acls",
    "/c/{cluster}/users",
    "/c/{cluster}/users/{view}",
    "/c/{cluster}/quotas",
    "/c/{cluster}/broker-settings",
    "/c/{cluster}/pipelines",
    "/c/{cluster}/pipelines/{pipeline}",
    "/c/{cluster}/brokers",
    "/c/{cluster}/brokers/{broker}",
    "/c/{cluster}/brokers/{broker}/{view}",
    "/c/{cluster}/reassignments",
)


class App:
    """An ASGI application."""

    def __init__(self, dispatcher: Dispatcher, assets: Assets, hosts: Hosts) -> None:
        self.dispatcher = dispatcher
        self.assets = assets
        self.hosts = hosts
        self.pages = Table([(GET, path, path) for path in PAGES])

    def __repr__(self) -> str:
        return f"<App {self.dispatcher}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # serving.py switches the others off
        request = Request(scope, receive)
        response = await self._answer(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", _caching(scope["raw_path"], "etag" in response.headers))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            self._check(request)
            if request.scope["raw_path"].startswith(API):
                return await self.dispatcher.answer(request)
            return self._file(request)
        except ApiError as problem:
            return error_response(problem)
        except Exception:
            logger.exception("%s %s went wrong", request.method, request.scope["raw_path"].decode(errors="replace"))
            return error_response(ApiError(500, "INTERNAL", "the console has made a mistake: its log says more"))

    def _check(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not self.hosts.serves(host):
            raise ApiError(
                421, "WRONG_HOST", "this console is not known by that name (ottla console --allowed-host NAME)"
            )
        is_safe = request.method in SAFE
        is_api = request.scope["raw_path"].startswith(API)
        is_ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not is_ours and (is_api or not is_safe):
            raise ApiError(403, "FOREIGN_ORIGIN", "only pages of the console and programs ask for this")
        if is_safe:
            return
        origin = request.headers.get("origin")
        if origin is not None and _host_of(origin) != host.lower():
            raise ApiError(403, "FOREIGN_ORIGIN", "changes come from the console's own pages")

    def _file(self, request: Request) -> Response:
        path: bytes = request.scope["raw_path"]
        if request.method not in SAFE:
            raise ApiError(405, "METHOD_NOT_ALLOWED", "pages are read with GET", {"Allow": "GET"})
        if path.startswith(b"/static/"):
            return self.assets.file(path.removeprefix(b"/static/"), request.headers.get("if-none-match"))
        if path == b"/favicon.ico":
            return self.assets.file(b"icon.svg", None)
        if self.pages.find(GET, path).target is None:
            raise not_found("there is no such page")
        return self.assets.file(b"index.html", request.headers.get("if-none-match"))


def _caching(raw_path: bytes, has_tag: bool) -> str:
    """What the API tells is for one person, and stays on no disk unless it is asked for again and again."""
    if not raw_path.startswith(API):
        return "no-cache"
    return "private, no-cache" if has_tag else "no-store"


def _host_of(origin: str) -> str | None:
    """None: of nobody."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
