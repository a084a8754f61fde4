"""A request of the API: its caller, parameters and body, and the notes for the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.requests import Request

from ottla.base.names import topic_name_problem
from ottla.client.admin import Topic
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console.api.errors import Unavailable, bad_request, forbidden, invalid_topic, not_found, to_unavailable
from ottla.console.api.routing import Route
from ottla.console.auth import rights
from ottla.console.auth.rights import Grant, Role
from ottla.console.auth.sessions import Session
from ottla.console.clusters.cluster import Cluster
from ottla.console.clusters.snapshot import Snapshot

if TYPE_CHECKING:
    from ottla.console.console import Console

T = TypeVar("T")
NAMES_MAX = 1_000  # that one request may change
INT_DIGITS_MAX = 19


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
