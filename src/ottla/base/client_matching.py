"""Which clients a subscription to client metrics is for (KIP-714).

A matcher is a list of `name=pattern`: all must match, each the whole text. Without any, every client matches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.base.setting_types import BadValueError, trim

MATCH_NAMES: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

Matcher = Mapping[str, re.Pattern[str]]


def parse_matcher(items: Sequence[str]) -> Matcher:
    """Patterns by name; of two for one name the later counts. Raises BadValueError in Kafka's words."""
    patterns = {}
    for item in items:
        name, is_pair, pattern = item.partition("=")
        try:
            if not is_pair or trim(name) not in MATCH_NAMES:
                raise ValueError(name)
            patterns[trim(name)] = re.compile(trim(pattern))
        except (ValueError, re.error):
            raise BadValueError(f"Illegal client matching pattern: {item}") from None
    return patterns


def matches(matcher: Matcher, client: Mapping[str, str]) -> bool:
    return all(pattern.fullmatch(client.get(name, "")) for name, pattern in matcher.items())
