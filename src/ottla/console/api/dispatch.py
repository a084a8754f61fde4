"""From a request under /api to its answer: who asks, may he, what does he send; then the handler; then the trail.

The one check of rights for pages, programs and streams. Answers about a cluster are made once for each version of it:
a hundred viewers cost as much as one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ottla.base import tasks
from ottla.client.errors import ClientError
from ottla.console.api import errors
from ottla.console.api.call import Call, Caller, Note
from ottla.console.api.errors import ApiError, Sentence
from ottla.console.api.routing import DELETE, GET, Route, Table
from ottla.console.people import rights
from ottla.console.store import Entry, Tables
from ottla.operations.errors import OperationError, WrongInputError

if TYPE_CHECKING:
    from ottla.console.console import Console

logger = logging.getLogger(__name__)
BODY_BYTES_MAX = 1024 * 1024
NAMED = ("topic", "group", "pipeline", "transaction")
JSON = "application/json"
AUDIT_TEXT_MAX = 20_000
ANSWERS_MAX = 100  # that are kept for others
REFUSALS_MAX = 20  # of a person that are noted in a minute


NEEDS_ROLE = "{0} may not do this: it needs the role of {1}"
NEEDS_ALL_NAMES = "{0} may not do this: it needs the role of {1} for all names"
READS_MESSAGES = "{0} may not do this: it needs the role of {1} and the right to read messages"


class Dispatcher:
    """Answers requests by a table of routes."""

    def __init__(self, console: Console, routes: list[Route]) -> None:
        self.console = console
        self.routes = routes
        self.table = Table([(route.method, route.path, route) for route in routes])
        self.refusals: Counter[str] = Counter()  # by person, of one minute
        self.refusals_minute = 0
        self.kept: dict[tuple[str, str], tuple[str, asyncio.Task[bytes]]] = {}

    def __repr__(self) -> str:
        return f"<Dispatcher {len(self.routes)} routes>"

    async def answer(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except ApiError as problem:
            return error_response(problem)
        except ClientDisconnect:
            return Response(status_code=400)

    async def _answer(self, request: Request) -> Response:
        method = GET if request.method == "HEAD" else request.method
        found = self.table.find(method, request.scope["raw_path"])
        route = found.target
        if route is None and not found.methods:
            raise errors.not_found("there is no {0}", request.url.path)
        if route is None:
            allowed = ", ".join(found.methods)
            raise ApiError(405, "METHOD_NOT_ALLOWED", Sentence("this path has {0}", allowed), {"Allow": allowed})
        caller = await self.console.signing_in.caller_of(request)
        try:
            self._check(route, found.parameters, caller)
        except ApiError as problem:
            await self._note_refusal(Call(self.console, route, request, found.parameters, caller, None), problem)
            raise
        body = await read_body(request, route)
        call = Call(self.console, route, request, found.parameters, caller, body)
        if method == GET:
            return await self._look(call)
        return await self._change(call)

    def _check(self, route: Route, parameters: dict[str, str], caller: Caller) -> None:
        if route.needs is None:
            return
        cluster = parameters.get("cluster")
        names: list[str | None] = [parameters[key] for key in NAMED if key in parameters]
        if not names:  # what an admin does to a cluster is about all names
            is_about_all = route.is_about_all or route.needs is rights.Role.ADMIN
            names = [rights.ALL if is_about_all and cluster is not None else None]
        is_allowed = all(rights.may(caller.grants, route.needs, cluster, name) for name in names)
        if not is_allowed and route.needs is rights.Role.VIEWER and cluster is None:
            is_allowed = bool(caller.grants)
        if is_allowed and route.reads_messages:
            is_allowed = rights.may_read_messages(caller.grants, cluster or "", parameters["topic"])
        if not caller.grants:
            raise self.console.signing_in.refusal()
        if not is_allowed:
            raise errors.forbidden(_needed(route), caller.person, _role(route))
        if cluster is not None:
            self.console.cluster(cluster)  # 404 if there is none

    async def _look(self, call: Call) -> Response:
        is_shared = "cluster" in call.parameters and call.route.answer is not None and call.sees_all
        is_shared = is_shared and call.route.needs is rights.Role.VIEWER  # the others know more than the snapshot
        if not is_shared or call.route.reads_messages or not call.route.is_shared:
            answer = await _run(call)
            return answer if isinstance(answer, Response) else Response(msgspec.json.encode(answer), media_type=JSON)
        version = call.cluster.version
        headers = {"ETag": f'"{self.console.started_ms:x}-{version}"'}
        if call.request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        data = await self._shared(call, version)
        return Response(data, media_type=JSON, headers=headers)

    async def _shared(self, call: Call, version: str) -> bytes:
        """What all who see everything get, made once for each version of the cluster."""
        cluster = call.parameters["cluster"]
        key = cluster, f"{call.request.scope['raw_path']!r}?{call.request.url.query}"
        self.kept = {each: item for each, item in self.kept.items() if each[0] != cluster or item[0] == version}
        while len(self.kept) >= ANSWERS_MAX:  # anybody can ask for /topics?x=1, ?x=2, …
            del self.kept[next(iter(self.kept))]
        if key not in self.kept:
            self.kept[key] = version, tasks.ask(_encoded(call), f"answer to {call.request.url.path}")
        _, making = self.kept[key]
        try:
            return await asyncio.shield(making)
        except ApiError:
            self.kept.pop(key, None)
            raise

    async def _change(self, call: Call) -> Response:
        try:
            answer = await _run(call)
        except ApiError as problem:
            await self._note(call, f"{problem.code}: {problem.message}")
            raise
        await self._note(call, "done")
        if isinstance(answer, Response):
            return answer
        return Response(status_code=204) if answer is None else Response(msgspec.json.encode(answer), media_type=JSON)

    async def _note_refusal(self, call: Call, problem: ApiError) -> None:
        """So many a minute and person that nobody can have the trail forget what stands there."""
        if call.route.method == GET or problem.code != errors.FORBIDDEN_CODE:
            return
        minute = self.console.clock.now_ms() // 60_000
        if minute != self.refusals_minute:
            self.refusals_minute, self.refusals = minute, Counter()
        self.refusals[call.caller.person] += 1
        if self.refusals[call.caller.person] <= REFUSALS_MAX:
            await self._note(call, f"{problem.code}: {problem.message}")

    async def _note(self, call: Call, outcome: str) -> None:
        action = f"{call.route.method} {call.route.path}"
        path = call.request.url.path
        if not call.route.is_change:
            return
        for note in call.notes or ([] if call.route.needs is None else [Note(path)]):
            entry = Entry(
                self.console.clock.now_ms(),
                call.caller.person,
                call.caller.address,
                call.parameters.get("cluster", ""),
                action,
                note.target,
                _text(note.before),
                _text(note.after),
                outcome[:AUDIT_TEXT_MAX],
            )
            try:
                await self.console.store.run(Tables.note, entry)
            except Exception:
                logger.exception("the audit trail could not be written: %s", entry)


async def _encoded(call: Call) -> bytes:
    return msgspec.json.encode(await _run(call))


async def _run(call: Call) -> object:
    """Handlers that await are coroutines; those that only reckon are plain functions and run in a thread."""
    try:
        if iscoroutinefunction(call.route.handler):
            return await call.route.handler(call)
        return await asyncio.to_thread(call.route.handler, call)
    except ClientError as problem:
        raise errors.of_cluster(problem) from None
    except WrongInputError as problem:
        raise errors.bad_request(str(problem)) from None
    except OperationError as problem:
        raise ApiError(409, "NOT_POSSIBLE", str(problem)) from None


async def read_body(request: Request, route: Route) -> Any:
    """The body as its route declares it; what is too large is not read to the end."""
    if route.body is None:
        if route.method not in (GET, DELETE):
            await _bytes_of(request)
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise ApiError(415, "UNSUPPORTED_MEDIA_TYPE", Sentence("send the body as {0}", JSON))
    data = await _bytes_of(request)
    try:
        return msgspec.json.decode(data, type=route.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise errors.bad_request("the body is not what this path takes: {0}", problem) from None


async def _bytes_of(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > BODY_BYTES_MAX:
        raise _too_large()
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            raise _too_large()
    return bytes(data)


def error_response(problem: ApiError) -> Response:
    told: dict[str, object] = {"error": problem.code, "message": problem.message}
    if problem.sentence is not None:
        told |= {"sentence": problem.sentence.pattern, "values": problem.sentence.values}
    data = msgspec.json.encode(told)
    return Response(data, problem.status, headers=problem.headers, media_type=JSON)


def _too_large() -> ApiError:
    return ApiError(413, "TOO_LARGE", Sentence("a body has at most {0} bytes", BODY_BYTES_MAX), {"Connection": "close"})


def _role(route: Route) -> str:
    assert route.needs is not None
    return route.needs.name.lower()


def _needed(route: Route) -> str:
    if route.reads_messages:
        return READS_MESSAGES
    return NEEDS_ALL_NAMES if route.is_about_all else NEEDS_ROLE


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()[:AUDIT_TEXT_MAX]
