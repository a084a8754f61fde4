"""A route of the API, and a request: its caller, parameters and body, and the notes for the audit trail.

A route declares role, body and answer; the check of rights, the decoding of bodies, the audit trail and
/api/openapi.json are derived from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.requests import Request

from ottla.base.names import topic_name_problem
from ottla.client.admin import Topic
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console.api.errors import Unavailable, bad_request, forbidden, invalid_topic, not_found, to_unavailable
from ottla.console.auth import rights
from ottla.console.auth.rights import Grant, Role
from ottla.console.auth.sessions import Session
from ottla.console.clusters.cluster import Cluster
from ottla.console.clusters.snapshot import Snapshot

if TYPE_CHECKING:
    from ottla.console.console import Console

T = TypeVar("T")
GET, POST, PUT, PATCH, DELETE = "GET", "POST", "PUT", "PATCH", "DELETE"
NAMES_MAX = 1_000  # that one request may change
INT_DIGITS_MAX = 19


class Route(NamedTuple):
    """One route. Without a `required_role`, callers need not be signed in.

    The role is checked for the {cluster} of the path and, if there are any, for names such as {topic} or {group}.
    """

    method: str
    path: str
    handler: Callable[[Call], Awaitable[object] | object]  # a coroutine, or a function that runs in a thread
    required_role: Role | None
    summary: str
    answer: Any = None  # the type of the answer; None: nothing (204)
    body: Any = None  # the type of the body, a msgspec.Struct
    reads_messages: bool = False  # also requires that right for the topic
    is_change: bool = True  # of a route other than GET: audited
    needs_all_names: bool = False  # requires the role for all names of the cluster
    is_shared: bool = True  # of a GET on a cluster: the answer is cached for each version of the cluster


class Caller(NamedTuple):
    """The caller of a request. Without sign-in it is `local`, with all rights."""

    person: str
    grants: Sequence[Grant]
    address: str
    session: Session | None = None  # None: not signed in


class AuditNote(NamedTuple):
    """The details of a change, for the audit trail."""

    target: str
    before: object = None
    after: object = None
    problem: str = ""  # if this one of several was refused: error code and message


class Call:
    """A request that its route allows."""

    def __init__(
        self,
        console: Console,
        route: Route,
        request: Request,
        parameters: Mapping[str, str],
        caller: Caller,
        body: Any,
    ) -> None:
        self.console = console
        self.route = route
        self.request = request
        self.parameters = parameters
        self.caller = caller
        self.body = body
        self.audit_notes: list[AuditNote] = []

    def __repr__(self) -> str:
        return f"<Call {self.route.method} {self.route.path} by {self.caller.person}>"

    @property
    def cluster(self) -> Cluster:
        return self.console.cluster(self.parameters["cluster"])

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster.snapshot

    def topic(self) -> Topic:
        """The topic in the path, from the snapshot."""
        name = self.parameters["topic"]
        if name not in self.snapshot.topics:
            problem = topic_name_problem(name)
            raise invalid_topic(problem) if problem else not_found("there is no topic {0}", name)
        return self.snapshot.topics[name]

    def sees(self, name: str) -> bool:
        """Whether the caller may see this topic or group."""
        return rights.has_role(self.caller.grants, Role.VIEWER, self.parameters["cluster"], name)

    @property
    def sees_all(self) -> bool:
        return rights.sees_all_names(self.caller.grants, self.parameters["cluster"])

    def require_role(self, role: Role, name: str) -> None:
        """Require a role for a name that is not in the path. Raises ApiError."""
        if not rights.has_role(self.caller.grants, role, self.parameters["cluster"], name):
            raise forbidden("{0} may not do this with {1}", self.caller.person, name)

    def names_to_change(self, refusal: str) -> list[str]:
        """The names in the body. Raises ApiError if they are too many, or need rights that the caller lacks."""
        names: list[str] = self.body.names
        if not 0 < len(names) <= NAMES_MAX:
            raise bad_request(refusal, NAMES_MAX)
        for name in names:
            self.require_role(Role.OPERATOR, name)
        return names

    def audit(self, target: str, before: object = None, after: object = None, problem: str = "") -> None:
        """Add a note for the audit trail."""
        self.audit_notes.append(AuditNote(target, before, after, problem))

    async def query_if_available(self, function: Callable[[Client], list[T]]) -> tuple[list[T], Unavailable | None]:
        """The answer of the cluster; if it lastingly does not provide this, an empty list and the reason."""
        try:
            return await self.cluster.query_cached(function), None
        except ClientError as problem:
            return [], to_unavailable(problem)

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def int_query(self, name: str, default: int, most: int) -> int:
        text = self.query(name)
        if not text:
            return default
        if not is_decimal(text) or int(text) > most:
            raise bad_request("{0} must be a whole number up to {1}", name, most)
        return int(text)


def is_decimal(text: str) -> bool:
    """Whether the text is a decimal number, bounded in length: Python refuses to convert very long ones."""
    return text.isascii() and text.isdecimal() and len(text) <= INT_DIGITS_MAX
