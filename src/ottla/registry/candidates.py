"""Who of several nodes writes: the words of Confluent's group protocol `sr`, and its choice. Pure.

Rules:
1. A member's metadata says where its node is and whether it may lead; the assignment names the one that does. Both are
   JSON, and what is not known is let be: nodes of Confluent and Karapace may be in the same group.
2. Of those that may lead the one with the smallest address does, so that everybody would choose the same.
3. Two nodes with one address are refused: whoever forwards would not know to whom.
4. Nodes that keep their schemas in different topics may be in one group, since it has one name by default: each topic
   has its own leader. Only who has another topic than the usual one says so, for Confluent's nodes know no such word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

VERSION: Final = 1
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
TOPIC: Final = "_schemas"
GROUP: Final = "schema-registry"


class Candidate(NamedTuple):
    """A node as the others see it."""

    host: str
    port: int
    is_eligible: bool = True
    scheme: str = "http"
    topic: str = TOPIC

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def words(self) -> dict[str, Any]:
        words = {
            "version": VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
        }
        return words if self.topic == TOPIC else {**words, "topic": self.topic}


class Assignment(NamedTuple):
    """What all members are told: who leads, if anybody does."""

    member: str | None
    leader: Candidate | None
    error: int = NO_ERROR


NOBODY: Final = Assignment(None, None)


def choose(members: Mapping[str, Candidate]) -> dict[str, Assignment]:
    """What each member is told; `members` by their ids in the group."""
    if len({candidate.url for candidate in members.values()}) < len(members):
        return dict.fromkeys(members, Assignment(None, None, DUPLICATE_URLS))
    leaders: dict[str, Assignment] = {}
    for member, candidate in sorted(members.items(), key=lambda item: item[1].url):
        if candidate.is_eligible:
            leaders.setdefault(candidate.topic, Assignment(member, candidate))
    return {member: leaders.get(candidate.topic, NOBODY) for member, candidate in members.items()}


def encode_candidate(candidate: Candidate) -> bytes:
    return _encode(candidate.words())


def decode_candidate(data: bytes) -> Candidate | None:
    return _candidate(_decode(data))


def encode_assignment(assignment: Assignment) -> bytes:
    return _encode(
        {
            "version": VERSION,
            "error": assignment.error,
            "master": assignment.member,
            "master_identity": assignment.leader.words() if assignment.leader is not None else None,
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


def _candidate(words: object) -> Candidate | None:
    if not isinstance(words, dict):
        return None
    host, port = words.get("host"), words.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not host or not 0 < port < 65536:
        return None
    scheme = "https" if words.get("scheme") == "https" else "http"
    is_eligible = words.get("master_eligibility") is not False
    return Candidate(host, port, is_eligible, scheme, str(words.get("topic", TOPIC)))


def _encode(words: Mapping[str, Any]) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return words if isinstance(words, dict) else {}
