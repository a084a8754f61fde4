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
import socket
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ottla.console.api.dispatch import Dispatcher
from ottla.console.api.errors import ApiError, not_found
from ottla.console.api.routing import GET, find_route
from ottla.web.application import JSON, HttpApp, raw_path
from ottla.web.errors import HttpError
from ottla.web.hosts import AllowedHosts, is_foreign_origin, is_loopback
from ottla.web.routing import RouteTable

SAFE_METHODS = ("GET", "HEAD")
API_PREFIX = b"/api/"
CONTENT_POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; "
    b"require-trusted-types-for 'script'; trusted-types ottla"
)
SECURITY_HEADERS = (
    *HttpApp.headers,
    (b"content-security-policy", CONTENT_POLICY),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
ERROR_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>ottla: {status}</title>
<link rel="stylesheet" href="/static/style.css"></head>
<body><main class="empty"><h1>{status}</h1><p>{message}</p><p><a href="/">ottla</a></p></main></body>
</html>
"""
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


class App(HttpApp):
    """An ASGI application."""

    headers = SECURITY_HEADERS
    internal_error = ApiError(500, "INTERNAL", "internal error of the console: see its log")

    def __init__(self, dispatcher: Dispatcher, assets: Assets, hosts: AllowedHosts) -> None:
        self.dispatcher = dispatcher
        self.assets = assets
        self.allowed_hosts = hosts
        self.pages = RouteTable([(GET, path, path) for path in PAGE_PATHS])

    def __repr__(self) -> str:
        return f"<App {self.dispatcher}>"

    async def reply(self, request: Request) -> Response | None:
        response = await super().reply(request)
        if response is not None:
            response.headers.setdefault("Cache-Control", _cache_control(raw_path(request), "etag" in response.headers))
        return response

    async def answer(self, request: Request) -> Response:
        self._check_origin(request)
        if (redirect := self._redirect_from_link(request)) is not None:
            return redirect
        if raw_path(request).startswith(API_PREFIX):
            return await self.dispatcher.answer(request)
        return self._serve_file(request)

    def error_response(self, request: Request, problem: HttpError) -> Response:
        assert isinstance(problem, ApiError)
        return _error_page(problem) if _is_browser(request) else _error_json(problem)

    def _is_page(self, path: bytes) -> bool:
        return find_route(self.pages, GET, path).target is not None

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not self.allowed_hosts.allows(host):
            raise ApiError(421, "WRONG_HOST", "this host name is not allowed (ottla console --allowed-host NAME)")
        is_safe = request.method in SAFE_METHODS
        is_api = raw_path(request).startswith(API_PREFIX)
        is_ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        if not is_ours and (is_api or not is_safe):
            raise ApiError(403, "FOREIGN_ORIGIN", "only the console's own pages and programs may send this request")
        if not is_safe and is_foreign_origin(request.headers.get("origin"), host):
            raise ApiError(403, "FOREIGN_ORIGIN", "only the console's own pages may make changes")

    def _redirect_from_link(self, request: Request) -> Response | None:
        signing_in, path = self.dispatcher.console.authenticator, raw_path(request)
        token = request.query_params.get("token")
        is_page = request.method in SAFE_METHODS and self._is_page(path)
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
        path: bytes = raw_path(request)
        if request.method not in SAFE_METHODS:
            raise ApiError(405, "METHOD_NOT_ALLOWED", "read pages with GET", {"Allow": "GET"})
        if path.startswith(b"/static/"):
            return self.assets.file(path.removeprefix(b"/static/"), request.headers.get("if-none-match"))
        if path == b"/favicon.ico":
            return self.assets.file(b"icon.svg", None)
        if self._is_page(path):
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


def allowed_hosts(listens_on: str, names: Iterable[str] = ()) -> AllowedHosts:
    """Beyond loopback also the host name and all addresses of this machine."""
    if is_loopback(listens_on):
        return AllowedHosts([listens_on, *names])
    return AllowedHosts([listens_on, socket.gethostname(), *names], allows_addresses=True)


def _is_browser(request: Request) -> bool:
    """Whether the request is a browser navigation; scripts of pages request JSON."""
    return request.method in SAFE_METHODS and "text/html" in request.headers.get("accept", "")


def _error_page(problem: ApiError) -> Response:
    page = ERROR_PAGE.format(status=problem.status, message=escape(problem.message))
    return Response(page, problem.status, headers=problem.headers, media_type="text/html")


def _error_json(problem: ApiError) -> Response:
    answer: dict[str, object] = {"error": problem.code, "message": problem.message}
    if problem.sentence is not None:
        answer |= {"sentence": problem.sentence.pattern, "values": problem.sentence.values}
    return Response(msgspec.json.encode(answer), problem.status, headers=problem.headers, media_type=JSON)


def _cache_control(raw_path: bytes, has_tag: bool) -> str:
    """Responses of the API are private; only those with an ETag may be stored."""
    if not raw_path.startswith(API_PREFIX):
        return "no-cache"
    return "private, no-cache" if has_tag else "no-store"
