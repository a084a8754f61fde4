"""Confluent's REST API as an ASGI application: routing, access checks, forwarding, responses.

Rules:
1. Names in paths may contain any character, also slashes (%2F): a path is split before it is decoded.
2. Every error is JSON with a code: {"error_code": 40401, "message": "..."}.
3. If the registry listens on loopback, only known Host headers are accepted (DNS rebinding), and requests that change
   something need the same origin.
4. Bodies are bounded: parsing one blocks the event loop for a few milliseconds at most.

`Accept` is evaluated as by Jersey, which Confluent's registry uses: the type `*` matches every type, a type without a
subtype matches all its subtypes, quality 0 excludes, and the first supported type that matches is chosen, not the one
with the best quality. An invalid header is answered with 400.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ottla.base.tasks import spawn_awaited
from ottla.registry import errors
from ottla.registry.access import Authenticator, User, denied, reads_everything
from ottla.registry.errors import RegistryError
from ottla.registry.forwarder import FORWARDED, NotSentError, UnknownOutcomeError
from ottla.registry.http.requests import Call, encode, not_found, read_parameters
from ottla.registry.http.routes import ROUTE_TABLE, Route
from ottla.registry.leadership import Forward, RawRequest, RawResponse
from ottla.registry.registry import Registry
from ottla.registry.subjects.schema import DEFAULT_CONTEXT, context_from, context_prefix
from ottla.web.application import HttpApp, Scope, raw_path, read_body
from ottla.web.errors import HttpError
from ottla.web.hosts import AllowedHosts, is_foreign_origin
from ottla.web.routing import path_segments

BODY_BYTES_MAX: Final = 4 << 20  # parsed in a few milliseconds
DRAINED_BYTES_MAX: Final = 100 << 20
LEADER_SECONDS_MAX: Final = 15.0  # a session timeout, and the election after it
LEADER_PAUSE_SECONDS: Final = 0.1
ANSWER_PAUSE_SECONDS: Final = 1.0
NOT_FOUND: Final = 404
UNAUTHORIZED: Final = 401
REALM: Final = 'Basic realm="schema registry"'
V1: Final = "application/vnd.schemaregistry.v1+json"
# Supported content types of bodies and responses, in order of preference.
RESPONSE_CONTENT_TYPES: Final = (V1, "application/vnd.schemaregistry+json", "application/json")
ACCEPTED_CONTENT_TYPES: Final = frozenset({*RESPONSE_CONTENT_TYPES, "application/octet-stream"})
UNKNOWN_PROPERTIES_HEADER: Final = b"confluent-accept-unknown-properties"


class RequestHeaders(NamedTuple):
    """The relevant headers."""

    accept: str = ""
    content_type: str = ""
    host: str = ""
    origin: str = ""
    accepts_unknown_properties: bool = False
    is_forwarded: bool = False
    authorization: str = ""


class RegistryApp(HttpApp):
    """The application. `hosts`: the accepted Host headers; None: any."""

    internal_error = RegistryError(500, "Internal Server Error")

    def __init__(
        self,
        registry: Registry,
        hosts: AllowedHosts | None = None,
        forward: Forward | None = None,
        access: Authenticator | None = None,
    ) -> None:
        self.registry = registry
        self.hosts = hosts
        self.forward = forward
        self.access = access  # None: every request is allowed

    def __repr__(self) -> str:
        return f"<RegistryApp {self.registry}>"

    def respond_synchronously(self, scope: Scope) -> Response | None:
        """The response to a request without a body; None if the handler would have to wait."""
        work = self.reply(Request(scope))
        try:
            work.send(None)
        except StopIteration as done:
            answer: Response | None = done.value
            return answer
        work.close()
        return None

    async def answer(self, request: Request) -> Response:
        head = _head(request.scope["headers"])
        kind = _answered(head.accept)
        answer = await self._answer(request, head)
        if not isinstance(answer, RawResponse):
            return _response(answer, 200, kind)
        response = Response(answer.body, answer.status)
        response.raw_headers = list(answer.headers)
        return response

    def error_response(self, request: Request, problem: HttpError) -> Response:
        assert isinstance(problem, RegistryError)
        try:
            kind = _answered(_head(request.scope["headers"]).accept)
        except RegistryError:
            kind = V1
        response = _response({"error_code": problem.code, "message": problem.message}, problem.status, kind)
        if problem.status == UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = REALM
        return response

    async def _answer(self, request: Request, head: RequestHeaders) -> object:
        self._check_host(head)
        context, segments = _context(path_segments(raw_path(request).rstrip(b"/"), "replace"))
        found = ROUTE_TABLE.find(request.method, segments)
        route = found.target
        if route is None:
            raise RegistryError(405, "HTTP 405 Method Not Allowed") if found.allowed_methods else not_found()
        user = await self.access.user_of(head.authorization) if self.access is not None else None
        body = b""
        if request.method not in ("GET", "HEAD"):
            if head.origin and is_foreign_origin(head.origin, head.host):
                raise RegistryError(403, "Pages of other origins may not change anything")
            body = await read_body(request, BODY_BYTES_MAX, _body_too_long, discarded_most=DRAINED_BYTES_MAX)
            if body and request.method != "DELETE":
                _check_content_type(head)
        call = self._make_call(found.parameters, request.scope, body, head, context, user)
        if user is not None:
            _check_rights(user, route, call)
        if self.registry.is_current:
            return await route.handler(call)
        if route.is_write:
            return await self._forward_change(route, call, _raw_request(request, body), head)
        return await self._read_after_catch_up(route, call)

    def _make_call(
        self, names: Mapping[str, str], scope: Scope, body: bytes, head: RequestHeaders, context: str, user: User | None
    ) -> Call:
        parameters = read_parameters(scope.get("query_string", b""))
        sees = user.may_read if user is not None else reads_everything
        return Call(self.registry, names, parameters, body, head.accepts_unknown_properties, context, sees)

    async def _read_after_catch_up(self, route: Route, call: Call) -> object:
        """Other nodes lead, so their changes are read first. If the cluster does not answer, known data is returned."""
        if not route.is_immutable:
            await self.registry.catch_up()
            return await route.handler(call)
        try:
            return await route.handler(call)
        except RegistryError as problem:
            if problem.status != NOT_FOUND:
                raise
        if not await self.registry.catch_up():
            raise errors.store_failed("Error from the backend Kafka store: it does not answer")
        return await route.handler(call)

    async def _forward_change(self, route: Route, call: Call, request: RawRequest, head: RequestHeaders) -> object:
        """The leader handles the request; if there is none, or it has just died, the next one, which
        may be this node.
        """
        leadership = self.registry.leadership
        until = asyncio.get_running_loop().time() + LEADER_SECONDS_MAX
        trouble = ""
        while True:
            if leadership.is_leader:
                await self.registry.catch_up()
                return await route.handler(call)
            if head.is_forwarded or self.forward is None:  # the sender finds the new leader in a moment
                raise errors.no_leader()
            leader = leadership.leader_url
            if leader is not None:
                try:
                    return await self._forwarded_response(self.forward(request, leader), leader)
                except NotSentError as problem:
                    trouble = str(problem)
                except UnknownOutcomeError as problem:
                    raise _not_forwarded(str(problem)) from None
            if asyncio.get_running_loop().time() >= until:
                raise _not_forwarded(trouble) if trouble else errors.no_leader()
            await asyncio.sleep(LEADER_PAUSE_SECONDS)

    async def _forwarded_response(self, forwarding: Awaitable[RawResponse], leader: str) -> RawResponse:
        """The leader's response. Waiting ends if another node becomes the leader, since this one may be paused."""
        work = spawn_awaited(forwarding, "forwarding")
        while True:
            was_leader = self.registry.leadership.leader_url in (leader, None)
            await asyncio.wait([work], timeout=ANSWER_PAUSE_SECONDS)
            if work.done():
                return work.result()
            if not was_leader:
                work.cancel()
                raise UnknownOutcomeError(f"{leader}: another node became the leader before it answered")

    def _check_host(self, head: RequestHeaders) -> None:
        if self.hosts is not None and head.host and not self.hosts.allows(head.host):
            raise RegistryError(403, "This registry does not serve this host name: see --allow-host")


def _response(body: object, status: int, kind: str) -> Response:
    return Response(encode(body), status, {"content-type": kind})


def _head(headers: Sequence[tuple[bytes, bytes]]) -> RequestHeaders:
    accept = content_type = host = origin = authorization = ""
    is_more = is_forwarded = False
    for name, value in headers:
        if name == b"accept":
            accept = f"{accept},{value.decode('latin-1')}" if accept else value.decode("latin-1")
        elif name == b"content-type":
            content_type = value.decode("latin-1")
        elif name == b"host":
            host = value.decode("latin-1")
        elif name == b"origin":
            origin = value.decode("latin-1")
        elif name == UNKNOWN_PROPERTIES_HEADER:
            is_more = value.lower() == b"true"
        elif name == FORWARDED:
            is_forwarded = value.lower() == b"true"
        elif name == b"authorization":
            authorization = value.decode("latin-1")
    return RequestHeaders(accept, content_type, host, origin, is_more, is_forwarded, authorization)


def _check_rights(user: User, route: Route, call: Call) -> None:
    """Checks the subject in the path; handlers filter lists."""
    subjects: tuple[str | None, ...]
    if route.is_write and route.path.startswith("/mode"):
        subjects = (None,)  # in mode IMPORT a subject takes IDs of its whole context
    elif "subject" in call.names:
        subjects = (call.named_subject, call.subject)  # an alias, and its target
    else:
        subjects = (call.setting_subject,)
    for subject in subjects:
        if route.is_write and not user.may_write(subject):
            raise denied(user, "write", subject)
        if not route.is_write and "subject" in call.names and not user.may_read(subject or ""):
            raise denied(user, "read", subject)


def _not_forwarded(trouble: str) -> RegistryError:
    return errors.forwarding_failed(f"Error while forwarding the request to the leader {trouble}")


def _raw_request(request: Request, body: bytes) -> RawRequest:
    query: bytes = request.scope.get("query_string", b"")
    target = raw_path(request) + (b"?" + query if query else b"")
    return RawRequest(request.method, target.decode("latin-1"), request.scope["headers"], body)


def _answered(accept: str) -> str:
    """The preferred content type of the client among ours."""
    if not accept or accept == "*/*":
        return V1
    kind = best_content_type(accept, RESPONSE_CONTENT_TYPES)
    if kind is None:
        raise RegistryError(406, "HTTP 406 Not Acceptable")
    return kind


def _body_too_long() -> RegistryError:
    return RegistryError(413, f"The body is longer than {BODY_BYTES_MAX} bytes")


def _check_content_type(head: RequestHeaders) -> None:
    kind = head.content_type.partition(";")[0].strip().lower()
    if kind and kind not in ACCEPTED_CONTENT_TYPES:
        raise RegistryError(415, "HTTP 415 Unsupported Media Type")


def _context(segments: list[str]) -> tuple[str, list[str]]:
    """/contexts/.test/subjects is /subjects in a context."""
    if len(segments) < 3 or segments[0] != "contexts":
        return "", segments
    try:
        context = context_from(segments[1])
    except ValueError as problem:
        raise RegistryError(400, str(problem)) from None
    return "" if context == DEFAULT_CONTEXT else context_prefix(context), segments[2:]


# ---- content negotiation
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = rf'\s*;\s*{_WORD}\s*(?:=\s*(?:{_WORD}|"(?:[^"\\]|\\.)*"))?'
_RANGE: Final = re.compile(rf"\s*({_WORD})(?:/({_WORD}))?((?:{_PARAMETER})*)\s*(?:,|$)")
_QUALITY: Final = re.compile(r";\s*[qQ]\s*=\s*([^\s;]*)")
_NUMBER: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


def best_content_type(accept: str, kinds: Sequence[str]) -> str | None:
    """The first of `kinds` that is listed, else the first that matches; None if none is acceptable."""
    wanted = list(_ranges(accept))
    named = {f"{type_}/{subtype}" for type_, subtype in wanted}
    for kind in kinds:
        if kind in named:
            return kind
    for kind in kinds:
        own_type = kind.partition("/")[0]
        if any(type_ == "*" or (type_ == own_type and subtype == "*") for type_, subtype in wanted):
            return kind
    return None


def _ranges(accept: str) -> Iterable[tuple[str, str]]:
    place = 0
    while place < len(accept):
        if accept[place] in ", \t":  # an empty element
            place += 1
            continue
        found = _RANGE.match(accept, place)
        if found is None:
            raise RegistryError(400, "HTTP 400 Bad Request")
        place = found.end()
        quality = _QUALITY.search(found[3])
        if quality is not None and _NUMBER.fullmatch(quality[1]) is None:
            raise RegistryError(400, "HTTP 400 Bad Request")
        if quality is None or float(quality[1]) > 0:
            yield found[1].lower(), (found[2] or "*").lower()
