"""Leadership among registry nodes: its interface, and Confluent's group protocol `sr`. Pure.

A node that is not the leader forwards changes (forwarder.py).
Rules of the protocol:
1. The metadata of a member has its address and whether it may lead; the assignment names the leader. Both are JSON, and
   unknown fields are ignored: nodes of Confluent and Karapace may be in the same group.
2. Of the eligible nodes the one with the smallest address leads, so every group leader would choose the same.
3. Two nodes with the same address are rejected, because forwarding would be ambiguous.
4. Nodes with different topics may share a group, which has one name by default: each topic has its own leader. Only
   nodes with a non-default topic send its name, because Confluent's nodes do not know the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

VERSION: Final = 1
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
TOPIC: Final = "_schemas"
GROUP: Final = "schema-registry"


class RegistryIdentity(NamedTuple):
    """A node as the other members see it."""

    host: str
    port: int
    is_eligible: bool = True
    scheme: str = "http"
    topic: str = TOPIC

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        words = {
            "version": VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
        }
        return words if self.topic == TOPIC else {**words, "topic": self.topic}


class Assignment(NamedTuple):
    """The assignment of all members: the leader, if there is one."""

    member: str | None
    leader: RegistryIdentity | None
    error: int = NO_ERROR


NO_LEADER: Final = Assignment(None, None)


def assign_leaders(members: Mapping[str, RegistryIdentity]) -> dict[str, Assignment]:
    """The assignment of each member; `members` by member ID."""
    if len({candidate.url for candidate in members.values()}) < len(members):
        return dict.fromkeys(members, Assignment(None, None, DUPLICATE_URLS))
    leaders: dict[str, Assignment] = {}
    for member, candidate in sorted(members.items(), key=lambda item: item[1].url):
        if candidate.is_eligible:
            leaders.setdefault(candidate.topic, Assignment(member, candidate))
    return {member: leaders.get(candidate.topic, NO_LEADER) for member, candidate in members.items()}


def encode_candidate(candidate: RegistryIdentity) -> bytes:
    return _encode(candidate.to_json())


def decode_candidate(data: bytes) -> RegistryIdentity | None:
    return _candidate(_decode(data))


def encode_assignment(assignment: Assignment) -> bytes:
    return _encode(
        {
            "version": VERSION,
            "error": assignment.error,
            "master": assignment.member,
            "master_identity": assignment.leader.to_json() if assignment.leader is not None else None,
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    words = _decode(data)
    error = words.get("error")
    member = words.get("master")
    return Assignment(
        member if isinstance(member, str) else None,
        _candidate(words.get("master_identity")),
        error if isinstance(error, int) else NO_ERROR,
    )


def _candidate(words: object) -> RegistryIdentity | None:
    if not isinstance(words, dict):
        return None
    host, port = words.get("host"), words.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not host or not 0 < port < 65536:
        return None
    scheme = "https" if words.get("scheme") == "https" else "http"
    is_eligible = words.get("master_eligibility") is not False
    return RegistryIdentity(host, port, is_eligible, scheme, str(words.get("topic", TOPIC)))


def _encode(words: Mapping[str, Any]) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return words if isinstance(words, dict) else {}


# ---- interface


class Leadership(Protocol):
    """Whether this node may write, and the leader's address; None: unknown at present.

    A changed `term` means that another node may have written in between.
    """

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_url(self) -> str | None: ...

    @property
    def term(self) -> int: ...


class SingleNode:
    """A single node, which always leads."""

    is_leader = True
    leader_url: str | None = None
    term = 0

    def __repr__(self) -> str:
        return "<SingleNode>"
