"""A request on its way through the API: who asks, for which cluster, with what; and what is noted about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request

from ottla.base.names import topic_name_problem
from ottla.client.admin import Topic
from ottla.console.api.errors import bad_request, bad_topic, forbidden, not_found
from ottla.console.api.routing import Route
from ottla.console.clusters.cluster import Cluster
from ottla.console.clusters.snapshot import Snapshot
from ottla.console.people import rights
from ottla.console.people.rights import Grant, Role
from ottla.console.people.sessions import Session

if TYPE_CHECKING:
    from ottla.console.console import Console

NAMES_MAX = 1_000  # that one request may change
DIGITS_MAX = 19


class Caller(NamedTuple):
    """Who asks. Without sign-in everybody on this machine is `local` and may do all."""

    person: str
    grants: Sequence[Grant]
    address: str
    session: Session | None = None  # None: nobody signs in, or he has not yet


class Note(NamedTuple):
    """What a change was about, for the audit trail."""

    target: str
    before: object = None
    after: object = None


class Call:
    """One request, already allowed by the row of its route."""

    def __init__(
        self,
        console: Console,
        route: Route,
        request: Request,
        parameters: dict[str, str],
        caller: Caller,
        body: Any,
    ) -> None:
        self.console = console
        self.route = route
        self.request = request
        self.parameters = parameters
        self.caller = caller
        self.body = body
        self.notes: list[Note] = []

    def __repr__(self) -> str:
        return f"<Call {self.route.method} {self.route.path} by {self.caller.person}>"

    @property
    def cluster(self) -> Cluster:
        return self.console.cluster(self.parameters["cluster"])

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster.snapshot

    def topic(self) -> Topic:
        """The topic of the path, as the snapshot knows it."""
        name = self.parameters["topic"]
        if name not in self.snapshot.topics:
            problem = topic_name_problem(name)
            raise bad_topic(problem) if problem else not_found("there is no topic {0}", name)
        return self.snapshot.topics[name]

    def sees(self, name: str) -> bool:
        """Whether lists show this topic or group to the caller."""
        return rights.may(self.caller.grants, Role.VIEWER, self.parameters["cluster"], name)

    @property
    def sees_all(self) -> bool:
        return rights.sees_all_names(self.caller.grants, self.parameters["cluster"])

    def require(self, role: Role, name: str) -> None:
        """The caller must have this role for a name that does not stand in the path."""
        if not rights.may(self.caller.grants, role, self.parameters["cluster"], name):
            raise forbidden("{0} may not do this with {1}", self.caller.person, name)

    def note(self, target: str, before: object = None, after: object = None) -> None:
        """What the audit trail says about this change."""
        self.notes.append(Note(target, before, after))

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, most: int) -> int:
        text = self.query(name)
        if not text:
            return default
        if not is_whole_number(text) or int(text) > most:
            raise bad_request("{0} is a whole number up to {1}", name, most)
        return int(text)


def is_whole_number(text: str) -> bool:
    """Of a length that Python makes a number of (not 5,000 digits)."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
