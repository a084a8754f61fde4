"""Who of several nodes writes: the words of Confluent's group protocol `sr`, and its choice. Pure.

Rules:
1. A member's metadata says where its node is and whether it may lead; the assignment names the one that does. Both are
   JSON, and what is not known is let be: nodes of Confluent and Karapace may be in the same group.
2. Of those that may lead the one with the smallest address does, so that everybody would choose the same.
3. Two nodes with one address are refused: whoever forwards would not know to whom.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

VERSION: Final = 1
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1


class Candidate(NamedTuple):
    """A node as the others see it."""

    host: str
    port: int
    is_eligible: bool = True
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def words(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
        }


class Assignment(NamedTuple):
    """What all members are told: who leads, if anybody does."""

    member: str | None
    leader: Candidate | None
    error: int = NO_ERROR


def choose(members: Mapping[str, Candidate]) -> Assignment:
    """`members` by their ids in the group."""
    if len({candidate.url for candidate in members.values()}) < len(members):
        return Assignment(None, None, DUPLICATE_URLS)
    eligible = sorted((candidate.url, member) for member, candidate in members.items() if candidate.is_eligible)
    if not eligible:
        return Assignment(None, None)
    member = eligible[0][1]
    return Assignment(member, members[member])


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
    match words:
        case {"host": str(host), "port": int(port)} if host and 0 < port < 65536:
            scheme = words.get("scheme")
            return Candidate(
                host, port, words.get("master_eligibility") is not False, "https" if scheme == "https" else "http"
            )
    return None


def _encode(words: Mapping[str, Any]) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        words = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return words if isinstance(words, dict) else {}
