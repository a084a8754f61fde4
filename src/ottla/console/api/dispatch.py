"""Dispatch of requests under /api: caller, rights, body, audit, handler, audit.

All pages, programs and streams pass this one check of rights. Answers about a cluster are cached for each version of
it, so a hundred viewers cost as much as one.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ottla.base import tasks
from ottla.client.errors import ClientError
from ottla.console.api import errors
from ottla.console.api.call import AuditNote, Call, Caller
from ottla.console.api.errors import ApiError, Sentence
from ottla.console.api.routing import DELETE, GET, Route, find_route
from ottla.console.auth import rights
from ottla.console.store import BEGUN, DONE, AuditEntry, Tables
from ottla.operations.errors import OperationError, WrongInputError
from ottla.web.application import JSON, raw_path, read_body
from ottla.web.routing import RouteTable

if TYPE_CHECKING:
    from ottla.console.console import Console

logger = logging.getLogger(__name__)
BODY_BYTES_MAX = 1024 * 1024
NAME_PARAMETERS = ("topic", "group", "pipeline", "transaction")
AUDIT_TEXT_MAX = 20_000
CACHED_ANSWERS_MAX = 100  # in the cache
AUDITED_REFUSALS_MAX = 20  # audited per person and minute


NEEDS_ROLE = "{0} may not do this: it needs the role of {1}"
NEEDS_ALL_NAMES = "{0} may not do this: it needs the role of {1} for all names"
NEEDS_READ_MESSAGES = "{0} may not do this: it needs the role of {1} and the right to read messages"


class Dispatcher:
    """Answers requests by a table of routes."""

    def __init__(self, console: Console, routes: list[Route]) -> None:
        self.console = console
        self.routes = routes
        self.table = RouteTable([(route.method, route.path, route) for route in routes])
        self.refusals: Counter[str] = Counter()  # by person, in the current minute
        self.refusals_minute = 0
        self.cached_answers: dict[tuple[str, str], tuple[str, asyncio.Task[bytes]]] = {}

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self.routes)} routes>"

    async def answer(self, request: Request) -> Response:
        found = find_route(self.table, request.method, raw_path(request))
        route = found.target
        if route is None and not found.allowed_methods:
            raise errors.not_found("there is no {0}", request.url.path)
        if route is None:
            allowed = ", ".join(found.allowed_methods)
            raise ApiError(405, "METHOD_NOT_ALLOWED", Sentence("this path supports {0}", allowed), {"Allow": allowed})
        caller = await self.console.authenticator.caller_of(request)
        try:
            self._check_rights(route, found.parameters, caller)
        except ApiError as problem:
            await self._audit_refusal(Call(self.console, route, request, found.parameters, caller, None), problem)
            raise
        body = await _read_body(request, route)
        call = Call(self.console, route, request, found.parameters, caller, body)
        return await (self._handle_get(call) if route.method == GET else self._handle_change(call))

    def _check_rights(self, route: Route, parameters: Mapping[str, str], caller: Caller) -> None:
        if route.required_role is None:
            return
        cluster = parameters.get("cluster")
        names: list[str | None] = [parameters[key] for key in NAME_PARAMETERS if key in parameters]
        if not names:  # admin operations on a cluster affect all names
            is_about_all = route.needs_all_names or route.required_role is rights.Role.ADMIN
            names = [rights.ALL if is_about_all and cluster is not None else None]
        is_allowed = all(rights.has_role(caller.grants, route.required_role, cluster, name) for name in names)
        if not is_allowed and route.required_role is rights.Role.VIEWER and cluster is None:
            is_allowed = bool(caller.grants)
        if is_allowed and route.reads_messages:
            is_allowed = rights.may_read_messages(caller.grants, cluster or "", parameters["topic"])
        if not caller.grants:
            raise self.console.authenticator.unauthenticated_error()
        if not is_allowed:
            raise errors.forbidden(_refusal_pattern(route), caller.person, _role_name(route))
        if cluster is not None:
            self.console.cluster(cluster)  # 404 if there is none

    async def _handle_get(self, call: Call) -> Response:
        is_shared = "cluster" in call.parameters and call.route.answer is not None and call.sees_all
        # answers for other roles contain more than the snapshot
        is_shared = is_shared and call.route.required_role is rights.Role.VIEWER
        if not is_shared or call.route.reads_messages or not call.route.is_shared:
            answer = await _run_handler(call)
            return answer if isinstance(answer, Response) else Response(msgspec.json.encode(answer), media_type=JSON)
        version = call.cluster.version
        headers = {"ETag": f'"{self.console.started_ms:x}-{version}"'}
        if call.request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        data = await self._cached_answer(call, version)
        return Response(data, media_type=JSON, headers=headers)

    async def _cached_answer(self, call: Call, version: str) -> bytes:
        """The answer for callers who see all names, made once for each version of the cluster."""
        cluster = call.parameters["cluster"]
        key = cluster, f"{raw_path(call.request)!r}?{call.request.url.query}"
        self.cached_answers = {
            each: item for each, item in self.cached_answers.items() if each[0] != cluster or item[0] == version
        }
        while len(self.cached_answers) >= CACHED_ANSWERS_MAX:  # queries such as /topics?x=1, ?x=2, … are unbounded
            del self.cached_answers[next(iter(self.cached_answers))]
        if key not in self.cached_answers:
            self.cached_answers[key] = (
                version,
                tasks.spawn_awaited(_run_and_encode(call), f"answer to {call.request.url.path}"),
            )
        _, making = self.cached_answers[key]
        try:
            return await asyncio.shield(making)
        except ApiError:
            self.cached_answers.pop(key, None)
            raise

    async def _handle_change(self, call: Call) -> Response:
        begun = await self._audit_begin(call)
        try:
            answer = await _run_handler(call)
        except ApiError as problem:
            await self._audit_end(call, begun, f"{problem.code}: {problem.message}")
            raise
        await self._audit_end(call, begun, DONE)
        if isinstance(answer, Response):
            return answer
        return Response(status_code=204) if answer is None else Response(msgspec.json.encode(answer), media_type=JSON)

    async def _audit_refusal(self, call: Call, problem: ApiError) -> None:
        """Audit a refusal; bounded, because a flood of refusals would push older entries out of the trail."""
        if call.route.method == GET or problem.code != errors.FORBIDDEN_CODE:
            return
        minute = self.console.clock.now_ms() // 60_000
        if minute != self.refusals_minute:
            self.refusals_minute, self.refusals = minute, Counter()
        self.refusals[call.caller.person] += 1
        if self.refusals[call.caller.person] <= AUDITED_REFUSALS_MAX:
            try:
                await self.console.store.run(
                    Tables.add_audit, *self._audit_entries(call, f"{problem.code}: {problem.message}")
                )
            except sqlite3.Error as broken:  # only the audit entry is lost
                logger.warning("the audit trail cannot be written: %s", broken)

    async def _audit_begin(self, call: Call) -> int | None:
        """Audit a change before it is made; if that fails, it is refused. None: not audited."""
        if not call.route.is_change or call.route.required_role is None:
            return None
        try:
            return await self.console.store.run(Tables.add_audit, *self._audit_entries(call, BEGUN))
        except sqlite3.Error as problem:
            logger.warning("the audit trail cannot be written; changes are refused: %s", problem)
            words = Sentence("the audit trail cannot be written, so nothing was changed: {0}", problem)
            raise ApiError(503, "AUDIT_FAILED", words) from None

    async def _audit_end(self, call: Call, begun: int | None, outcome: str) -> None:
        if begun is None:
            return
        entries = self._audit_entries(call, outcome)
        try:
            await self.console.store.run(Tables.update_audit, begun, *entries)
        except sqlite3.Error as problem:
            logger.error("the audit trail has the start of a change, but not its end: %s: %s", problem, entries)

    def _audit_entries(self, call: Call, outcome: str) -> list[AuditEntry]:
        return [
            AuditEntry(
                self.console.clock.now_ms(),
                call.caller.person,
                call.caller.address,
                call.parameters.get("cluster", ""),
                f"{call.route.method} {call.route.path}",
                note.target,
                _json_text(note.before),
                _json_text(note.after),
                (note.problem or outcome)[:AUDIT_TEXT_MAX],
            )
            for note in call.audit_notes or [AuditNote(call.request.url.path)]
        ]


async def _run_and_encode(call: Call) -> bytes:
    return msgspec.json.encode(await _run_handler(call))


async def _run_handler(call: Call) -> object:
    """Run the handler: a coroutine on the loop, a plain function in a thread."""
    try:
        if iscoroutinefunction(call.route.handler):
            return await call.route.handler(call)
        return await asyncio.to_thread(call.route.handler, call)
    except ClientError as problem:
        raise errors.from_client_error(problem) from None
    except WrongInputError as problem:
        raise errors.bad_request(str(problem)) from None
    except OperationError as problem:
        raise ApiError(409, "NOT_POSSIBLE", str(problem)) from None


async def _read_body(request: Request, route: Route) -> Any:
    """The decoded body."""
    if route.body is not None and _media_type(request) != JSON:
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", Sentence("send the body as {0}", JSON))
    if route.body is None and route.method in (GET, DELETE):
        return None
    data = await read_body(request, BODY_BYTES_MAX, _too_large)
    if route.body is None:
        return None
    try:
        return msgspec.json.decode(data, type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise errors.bad_request("the body does not match this path: {0}", problem) from None


def _too_large() -> ApiError:
    return ApiError(413, "TOO_LARGE", Sentence("a body has at most {0} bytes", BODY_BYTES_MAX), {"Connection": "close"})


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _role_name(route: Route) -> str:
    assert route.required_role is not None
    return route.required_role.name.lower()


def _refusal_pattern(route: Route) -> str:
    if route.reads_messages:
        return NEEDS_READ_MESSAGES
    return NEEDS_ALL_NAMES if route.needs_all_names else NEEDS_ROLE


def _json_text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()[:AUDIT_TEXT_MAX]
