"""Evaluates tables of schema pairs: each pair under all seven levels."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ottla.registry.formats import ParsedSchema, parse
from ottla.registry.formats.compatibility import check


class Pair(NamedTuple):
    """`backward`: the problems of the new schema reading data of the old one; `forward`: the opposite.

    Error types in any order; empty: compatible.
    """

    what: str
    old: Any
    new: Any
    backward: str = ""
    forward: str = ""


def kinds(messages: list[str]) -> list[str]:
    return sorted(found for message in messages for found in re.findall(r"^\{errorType:['\"](\w+)", message))


def judge(kind: str, old: str, new: str, backward: str, forward: str) -> None:
    earlier, later = parse(kind, old, {}), parse(kind, new, {})
    assert kinds(check("BACKWARD", later, [earlier])) == sorted(backward.split())
    assert kinds(check("FORWARD", later, [earlier])) == sorted(forward.split())
    is_compatible = {
        "NONE": True,
        "BACKWARD": not backward,
        "BACKWARD_TRANSITIVE": not backward,
        "FORWARD": not forward,
        "FORWARD_TRANSITIVE": not forward,
        "FULL": not backward and not forward,
        "FULL_TRANSITIVE": not backward and not forward,
    }
    assert {level: not check(level, later, [earlier]) for level in is_compatible} == is_compatible
    # The same schema again in between: levels without _TRANSITIVE check only the last version.
    between: list[ParsedSchema] = [earlier, later]
    for level, verdict in is_compatible.items():
        assert (not check(level, later, between)) == (verdict if level.endswith("TRANSITIVE") else True), level
