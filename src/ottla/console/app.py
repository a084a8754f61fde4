"""The ASGI application of the console: checks every request and sets the headers of every response.

Rules:
1. The Host header must be allowed (DNS rebinding), else 421. Changes must come from the console's own pages or from
   programs: a foreign Origin or Sec-Fetch-Site is refused. Under /api this also holds for reads, because a foreign page
   could start searches without seeing the answers. Without sign-in, requests through a proxy need the token, also for
   files and pages.
2. Every response forbids foreign scripts, frames and connections; there are no exceptions.
3. Responses under /api are JSON, errors included. All other paths are files or pages. Browser navigations
   (Accept: text/html) get errors as a page.
4. A valid token in the address of a page (?token=) becomes a cookie. In any case the browser is redirected to the
   address without the token.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ottla.console.api.dispatch import Dispatcher, error_response
from ottla.console.api.errors import ApiError, not_found
from ottla.console.api.routing import GET, RouteTable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger(__name__)
SAFE_METHODS = ("GET", "HEAD")
API_PREFIX = b"/api/"
SECURITY_HEADERS = {
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
ERROR_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>ottla: {status}</title>
<link rel="stylesheet" href="/static/style.css"></head>
<body><main class="empty"><h1>{status}</h1><p>{message}</p><p><a href="/">ottla</a></p></main></body>
</html>
"""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
PAGES_FOLDER = Path(__file__).parent / "pages"
VENDOR = "vendor"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
LIBRARIES_MISSING = "the libraries of the pages are missing: run `make pages` (needs npm), or install a wheel of ottla"
# Addresses of pages. The router in the browser (pages/routes.js) has the same ones.
PAGE_PATHS = (
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
    "/c/{cluster}/pipelines/{pipeline}/{view}",
    "/c/{cluster}/brokers",
    "/c/{cluster}/brokers/{broker}",
    "/c/{cluster}/brokers/{broker}/{view}",
    "/c/{cluster}/reassignments",
    "/c/{cluster}/alerts",
    "/c/{cluster}/alerts/{view}",
)


class App:
    """An ASGI application."""

    def __init__(self, dispatcher: Dispatcher, assets: Assets, hosts: AllowedHosts) -> None:
        self.dispatcher = dispatcher
        self.assets = assets
        self.allowed_hosts = hosts
        self.pages = RouteTable([(GET, path, path) for path in PAGE_PATHS])

    def __repr__(self) -> str:
        return f"<App {self.dispatcher}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # server.py disables websockets and lifespan
        request = Request(scope, receive)
        response = await self._respond(request)
        for name, value in SECURITY_HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", _cache_control(scope["raw_path"], "etag" in response.headers))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        try:
            self._check_origin(request)
            if (redirect := self._redirect_from_link(request)) is not None:
                return redirect
            if request.scope["raw_path"].startswith(API_PREFIX):
                return await self.dispatcher.answer(request)
            return self._serve_file(request)
        except ApiError as problem:
            return _error_page(problem) if _is_browser(request) else error_response(problem)
        except Exception:
            logger.exception("%s %s failed", request.method, request.scope["raw_path"].decode(errors="replace"))
            return error_response(ApiError(500, "INTERNAL", "internal error of the console: see its log"))

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not self.allowed_hosts.allows(host):
            raise ApiError(421, "WRONG_HOST", "this host name is not allowed (ottla console --allowed-host NAME)")
        is_safe = request.method in SAFE_METHODS
        is_api = request.scope["raw_path"].startswith(API_PREFIX)
        is_ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not is_ours and (is_api or not is_safe):
            raise ApiError(403, "FOREIGN_ORIGIN", "only the console's own pages and programs may send this request")
        if is_safe:
            return
        origin = request.headers.get("origin")
        if origin is not None and _host_of(origin) != host.lower():
            raise ApiError(403, "FOREIGN_ORIGIN", "only the console's own pages may make changes")

    def _redirect_from_link(self, request: Request) -> Response | None:
        signing_in, path = self.dispatcher.console.authenticator, request.scope["raw_path"]
        token = request.query_params.get("token")
        is_page = request.method in SAFE_METHODS and self.pages.find(GET, path).target is not None
        is_right = token is not None and is_page and signing_in.is_local_token(token)
        if not is_right:
            signing_in.check_not_proxied(request)
        if token is None or not is_page or signing_in.is_needed:
            return None
        query = parse_qsl(request.url.query, keep_blank_values=True)
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        place = "/" + path.decode("ascii", "replace").strip("/")  # never //host
        headers = {"Location": f"{place}?{rest}" if rest else place, "Cache-Control": "no-store"}
        if is_right:
            headers["Set-Cookie"] = signing_in.cookie_header(signing_in.start_local_session(request))
        return Response(status_code=303, headers=headers)

    def _serve_file(self, request: Request) -> Response:
        path: bytes = request.scope["raw_path"]
        if request.method not in SAFE_METHODS:
            raise ApiError(405, "METHOD_NOT_ALLOWED", "read pages with GET", {"Allow": "GET"})
        if path.startswith(b"/static/"):
            return self.assets.file(path.removeprefix(b"/static/"), request.headers.get("if-none-match"))
        if path == b"/favicon.ico":
            return self.assets.file(b"icon.svg", None)
        if self.pages.find(GET, path).target is not None:
            return self.assets.file(b"index.html", request.headers.get("if-none-match"))
        if not _is_browser(request):
            raise not_found("there is no such page")
        page = self.assets.file(b"index.html", None)  # the page shows the error in the user's language
        page.status_code = 404
        return page


class Assets:
    """The static files. Only files that exist at the start are served, by exact name; changed files are read again."""

    def __init__(self, folder: Path = PAGES_FOLDER) -> None:
        self.paths = {
            str(path.relative_to(folder)).encode(): path
            for path in folder.rglob("*")
            if path.is_file() and path.suffix in MEDIA_TYPES
        }
        self.is_complete = any(name.startswith(VENDOR.encode()) for name in self.paths)
        self.cached_files: dict[bytes, tuple[int, str, bytes]] = {}

    def __repr__(self) -> str:
        return f"<Assets {len(self.paths)} files>"

    def file(self, name: bytes, if_none_match: str | None) -> Response:
        if not self.is_complete and name == b"index.html":
            raise ApiError(503, "NO_PAGES", LIBRARIES_MISSING)
        if name not in self.paths:
            raise not_found("there is no such file")
        tag, data = self._read(name)
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(data, headers={"ETag": tag}, media_type=MEDIA_TYPES[self.paths[name].suffix])

    def _read(self, name: bytes) -> tuple[str, bytes]:
        path = self.paths[name]
        changed_ns = path.stat().st_mtime_ns
        kept = self.cached_files.get(name)
        if kept is None or kept[0] != changed_ns:
            data = path.read_bytes()
            kept = self.cached_files[name] = changed_ns, f'"{hashlib.sha256(data).hexdigest()[:20]}"', data
        return kept[1], kept[2]


class AllowedHosts:
    """The allowed values of the Host header, as protection from DNS rebinding.

    IP addresses are always allowed if the console listens on more than loopback.
    """

    def __init__(self, listens_on: str, allowed: Iterable[str] = ()) -> None:
        self.is_loopback = is_loopback(listens_on)
        self.names = LOOPBACK_NAMES | {listens_on.lower(), *(name.lower() for name in allowed)}
        if not self.is_loopback:
            self.names |= {socket.gethostname().lower()}

    def __repr__(self) -> str:
        return f"<AllowedHosts {sorted(self.names)}>"

    def allows(self, header: str) -> bool:
        name = _without_port(header).lower()
        return name in self.names or (not self.is_loopback and _is_ip_address(name))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_browser(request: Request) -> bool:
    """Whether the request is a browser navigation; scripts of pages request JSON."""
    return request.method in SAFE_METHODS and "text/html" in request.headers.get("accept", "")


def _error_page(problem: ApiError) -> Response:
    page = ERROR_PAGE.format(status=problem.status, message=escape(problem.message))
    return Response(page, problem.status, headers=problem.headers, media_type="text/html")


def _cache_control(raw_path: bytes, has_tag: bool) -> str:
    """Responses of the API are private; only those with an ETag may be stored."""
    if not raw_path.startswith(API_PREFIX):
        return "no-cache"
    return "private, no-cache" if has_tag else "no-store"


def _host_of(origin: str) -> str | None:
    """The host of an Origin header; None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
