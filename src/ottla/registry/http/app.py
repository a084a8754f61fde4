"""Confluent's REST API as an ASGI application: from a request to its handler and back.

Rules:
1. Names in paths may hold anything, also slashes (%2F): a path is taken apart before it is decoded.
2. Whatever happens, the answer is JSON with a code: {"error_code": 40401, "message": "..."}.
3. Only hosts that we know are answered where the registry listens on loopback (a page elsewhere could point its own
   name at us), and no page of another origin may change anything.
4. Bodies are bounded: what reads them holds up the loop for a few milliseconds at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from ottla.base.tasks import ask
from ottla.registry import errors
from ottla.registry.access import Access, User, denied, sees_everything
from ottla.registry.errors import RegistryError
from ottla.registry.forwarding import FORWARDED, LostAnswerError, NotSentError
from ottla.registry.http.calls import Answer, Call, encode, not_found, read_parameters
from ottla.registry.http.routes import Route, find_route
from ottla.registry.leadership import Forward, RawAnswer, RawRequest
from ottla.registry.registry import Registry
from ottla.registry.subjects.names import DEFAULT_CONTEXT, context_from, context_prefix

logger = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 4 << 20  # read as JSON in a few milliseconds
DRAINED_BYTES_MAX: Final = 100 << 20
TOO_LONG: Final = f"The body is longer than {BODY_BYTES_MAX} bytes"
SEGMENTS_MAX: Final = 12
LEADER_SECONDS_MAX: Final = 15.0  # a session of the group, and the election after it
LEADER_PAUSE_SECONDS: Final = 0.1
ANSWER_PAUSE_SECONDS: Final = 1.0
NOT_FOUND: Final = 404
UNAUTHORIZED: Final = 401
LOG_IN: Final = (b"www-authenticate", b'Basic realm="schema registry"')
LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
V1: Final = "application/vnd.schemaregistry.v1+json"
# What bodies may be, and answers, in the order of preference.
ANSWERED: Final = (V1, "application/vnd.schemaregistry+json", "application/json")
TAKEN: Final = frozenset({*ANSWERED, "application/octet-stream"})
MORE: Final = b"confluent-accept-unknown-properties"
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
Scope = MutableMapping[str, Any]


class Head(NamedTuple):
    """The headers that count."""

    accept: str = ""
    content_type: str = ""
    host: str = ""
    origin: str = ""
    is_more: bool = False
    is_forwarded: bool = False
    authorization: str = ""


class Reply(NamedTuple):
    """What goes over the wire."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class RegistryApp:
    """`hosts`: the names by which it may be called; None: any."""

    def __init__(
        self,
        registry: Registry,
        hosts: Collection[str] | None = None,
        forward: Forward | None = None,
        access: Access | None = None,
    ) -> None:
        self.registry = registry
        self.hosts = None if hosts is None else {name.lower() for name in hosts} | LOCAL_HOSTS
        self.forward = forward
        self.access = access  # None: everybody may do everything

    def __repr__(self) -> str:
        return f"<RegistryApp {self.registry}>"

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        reply = await self._reply(scope, receive)
        if reply is not None:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            await send({"type": "http.response.body", "body": reply.body})

    def at_once(self, scope: Scope) -> Reply | None:
        """The answer to a question that needs no body; None if it would have to wait for something."""
        work = self._reply(scope, None)
        try:
            work.send(None)
        except StopIteration as done:
            answer: Reply | None = done.value
            return answer
        work.close()
        return None

    async def _reply(self, scope: Scope, receive: Any) -> Reply | None:
        """None: nobody waits for it any more."""
        head = _head(scope["headers"])
        kind = V1
        try:
            kind = _answered(head.accept)
            answer = await self._answer(scope, receive, head)
        except RegistryError as problem:
            answer = Answer({"error_code": problem.code, "message": problem.message}, problem.status)
        except _GoneError:
            return None
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope.get("path"))
            answer = Answer({"error_code": 500, "message": "Internal Server Error"}, 500)
        if isinstance(answer, RawAnswer):
            return Reply(answer.status, [*answer.headers, NO_SNIFFING], answer.body)
        body = encode(answer.body)
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", kind.encode()), length, NO_SNIFFING]
        if answer.status == UNAUTHORIZED:
            headers.append(LOG_IN)
        return Reply(answer.status, headers, body)

    async def _answer(self, scope: Scope, receive: Any, head: Head) -> Answer | RawAnswer:
        self._check_host(head)
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        segments = _segments(raw_path)
        context, segments = _context(segments)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        found = find_route(method, segments)
        if found.route is None:
            raise RegistryError(405, "HTTP 405 Method Not Allowed") if found.methods else not_found()
        user = await self.access.user_of(head.authorization) if self.access is not None else None
        body = b""
        if method != "GET":
            _check_origin(head)
            body = await _read_body(scope, receive)
            if body and method != "DELETE":
                _check_content_type(head)
        call = self._make_call(found.names, scope, body, head, context, user)
        if user is not None:
            _check_rights(user, found.route, call)
        if self.registry.has_read_all:
            return Answer(await found.route.handler(call))
        if found.route.is_change:
            return await self._change_elsewhere(found.route, call, _raw_request(scope, raw_path, body), head)
        return await self._read_here(found.route, call)

    def _make_call(
        self, names: Mapping[str, str], scope: Scope, body: bytes, head: Head, context: str, user: User | None
    ) -> Call:
        parameters = read_parameters(scope.get("query_string", b""))
        sees = user.may_read if user is not None else sees_everything
        return Call(self.registry, names, parameters, body, head.is_more, context, sees)

    async def _read_here(self, route: Route, call: Call) -> Answer:
        """Others lead: what they have answered is read first. Without the cluster, what is known is told."""
        if not route.is_stable:
            await self.registry.catch_up()
            return Answer(await route.handler(call))
        try:
            return Answer(await route.handler(call))
        except RegistryError as problem:
            if problem.status != NOT_FOUND:
                raise
        if not await self.registry.catch_up():
            raise errors.store_failed("Error from the backend Kafka store: it does not answer")
        return Answer(await route.handler(call))

    async def _change_elsewhere(self, route: Route, call: Call, request: RawRequest, head: Head) -> Answer | RawAnswer:
        """The node that leads does it; if there is none, or it has just died, the next one, which may be this."""
        leadership = self.registry.leadership
        until = asyncio.get_running_loop().time() + LEADER_SECONDS_MAX
        trouble = ""
        while True:
            if leadership.is_leader:
                await self.registry.catch_up()
                return Answer(await route.handler(call))
            if head.is_forwarded or self.forward is None:  # who sent it knows better in a moment
                raise errors.no_leader()
            leader = leadership.leader_url
            if leader is not None:
                try:
                    return await self._handed_on(self.forward(request, leader), leader)
                except NotSentError as problem:
                    trouble = str(problem)
                except LostAnswerError as problem:
                    raise _not_forwarded(str(problem)) from None
            if asyncio.get_running_loop().time() >= until:
                raise _not_forwarded(trouble) if trouble else errors.no_leader()
            await asyncio.sleep(LEADER_PAUSE_SECONDS)

    async def _handed_on(self, forwarding: Awaitable[RawAnswer], leader: str) -> RawAnswer:
        """The leader's answer. One that was paused would keep everybody waiting: not when another one leads."""
        work = ask(forwarding, "forwarding")
        while True:
            was_leader = self.registry.leadership.leader_url in (leader, None)
            await asyncio.wait([work], timeout=ANSWER_PAUSE_SECONDS)
            if work.done():
                return work.result()
            if not was_leader:
                work.cancel()
                raise LostAnswerError(f"{leader}: another one leads before it has answered")

    def _check_host(self, head: Head) -> None:
        if self.hosts is None or not head.host:
            return
        if _host_name(head.host) not in self.hosts:
            raise RegistryError(403, "This registry is not called by that name: see --allow-host")


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


class _GoneError(Exception):
    """The client has left."""


def _head(headers: Sequence[tuple[bytes, bytes]]) -> Head:
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
        elif name == MORE:
            is_more = value.lower() == b"true"
        elif name == FORWARDED:
            is_forwarded = value.lower() == b"true"
        elif name == b"authorization":
            authorization = value.decode("latin-1")
    return Head(accept, content_type, host, origin, is_more, is_forwarded, authorization)


def _check_rights(user: User, route: Route, call: Call) -> None:
    """What the path names; the handlers leave out of lists what is not seen."""
    subjects: tuple[str | None, ...]
    if route.is_change and route.path[0] == "mode":
        subjects = (None,)  # with IMPORT one subject takes ids of its whole context
    elif "subject" in call.names:
        subjects = (call.named_subject, call.subject)  # an alias, and what it stands for
    else:
        subjects = (call.setting_subject,)
    for subject in subjects:
        if route.is_change and not user.may_write(subject):
            raise denied(user, "write", subject)
        if not route.is_change and "subject" in call.names and not user.may_read(subject or ""):
            raise denied(user, "read", subject)


def _not_forwarded(trouble: str) -> RegistryError:
    return errors.forwarding_failed(f"Error while forwarding the request to the leader {trouble}")


def _raw_request(scope: Scope, raw_path: bytes, body: bytes) -> RawRequest:
    query: bytes = scope.get("query_string", b"")
    target = raw_path + (b"?" + query if query else b"")
    return RawRequest(scope["method"], target.decode("latin-1"), scope["headers"], body)


def _answered(accept: str) -> str:
    """The content type that a client would like best among ours."""
    if not accept or accept == "*/*":
        return V1
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for name in ANSWERED:
        if name in wanted:
            return name
    if any(part in ("*/*", "application/*", "") for part in wanted):
        return V1
    raise RegistryError(406, "HTTP 406 Not Acceptable")


def _check_content_type(head: Head) -> None:
    kind = head.content_type.partition(";")[0].strip().lower()
    if kind and kind not in TAKEN:
        raise RegistryError(415, "HTTP 415 Unsupported Media Type")


def _check_origin(head: Head) -> None:
    if head.origin and head.origin.partition("://")[2] != head.host:
        raise RegistryError(403, "Pages of other origins may not change anything")


def _segments(raw_path: bytes) -> list[str]:
    parts = raw_path.partition(b"?")[0].split(b"/")
    if len(parts) > SEGMENTS_MAX:
        raise not_found()
    while parts and not parts[-1]:
        parts.pop()
    return [unquote_to_bytes(part).decode("utf-8", "replace") for part in parts[1:]]


def _context(segments: list[str]) -> tuple[str, list[str]]:
    """/contexts/.test/subjects is /subjects in a context."""
    if len(segments) < 3 or segments[0] != "contexts":
        return "", segments
    try:
        context = context_from(segments[1])
    except ValueError as problem:
        raise RegistryError(400, str(problem)) from None
    return "" if context == DEFAULT_CONTEXT else context_prefix(context), segments[2:]


async def _read_body(scope: Scope, receive: Any) -> bytes:
    """The body; of one that is too long the rest is thrown away, since who still sends does not hear an answer."""
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    length = int(announced) if announced.isdigit() and len(announced) < 20 else 0
    if length > DRAINED_BYTES_MAX:
        raise RegistryError(413, TOO_LONG)
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _GoneError
        part: bytes = message.get("body", b"")
        length += len(part)
        if length <= BODY_BYTES_MAX:
            parts.append(part)
        else:
            parts.clear()
        if length > DRAINED_BYTES_MAX or (length > BODY_BYTES_MAX and not message.get("more_body")):
            raise RegistryError(413, TOO_LONG)
        if not message.get("more_body"):
            return b"".join(parts)
