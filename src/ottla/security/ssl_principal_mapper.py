"""ssl.principal.mapping.rules: short names of the distinguished names in certificates, by Kafka's rules. Pure.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),.*$/$1/L, DEFAULT

The first rule with a pattern that matches the whole name decides; L and U make its result lower or upper case. DEFAULT
is the unchanged name. If no rule matches, the connection is closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ottla.base.regular_expressions import PatternError, compile_java_pattern
from ottla.base.security import ANONYMOUS
from ottla.security.key_stores import read_certificate

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_REFERENCE: Final = r"\\(.)|\$(\d+)"


class NoMatchingRuleError(ValueError):
    """Invalid rules, or a name that matches none of them."""


class SslPrincipalMapper:
    """Maps a certificate to a principal."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Raises NoMatchingRuleError."""
        self._text = rules
        self._rules = _parse(rules)

    def principal(self, certificate: bytes | None) -> str:
        """Return the principal of a certificate, as `User:...`; User:ANONYMOUS without one. Raises ValueError."""
        return f"User:{self.name(read_certificate(certificate).subject)}" if certificate is not None else ANONYMOUS

    def name(self, distinguished_name: str) -> str:
        """Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"No rules apply to {distinguished_name}, rules {self._text}")

    def __repr__(self) -> str:
        return f"<SslPrincipalMapper {self._text}>"


Rule = Callable[[str], "str | None"]


def _parse(text: str) -> list[Rule]:
    rules: list[Rule] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = re.compile(_RULE).match(text, position)
        rest = text[match.end() :].lstrip() if match is not None else ""
        if match is None or (rest and not rest.startswith(",")):
            raise NoMatchingRuleError(f"Invalid rule: {text[position:]}")
        rules.append(_default if match[1] else _rule(match[2], match[3], match[4]))
        position = len(text) - len(rest[1:].lstrip())
    return rules or [_default]


def _default(name: str) -> str:
    return name


def _rule(pattern_text: str, replacement: str, case: str) -> Rule:
    try:
        pattern = compile_java_pattern(pattern_text, has_groups=True)
    except PatternError as error:
        raise NoMatchingRuleError(f"Invalid rule: {pattern_text}: {error}") from None

    def apply(name: str) -> str | None:
        if pattern.fullmatch(name) is None:
            return None
        found: str = pattern.sub(lambda match: _expand_references(replacement, match), name)
        return found.lower() if case == "L" else found.upper() if case == "U" else found

    return apply


def _expand_references(replacement: str, match: re.Match[str]) -> str:
    """Replace `$1` by a group, if there is such a group; a backslash quotes the next character."""

    def one(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]
        digits: str = reference[2]
        for end in range(len(digits), 0, -1):  # Java uses as many digits as form an existing group number
            if int(digits[:end]) <= (match.re.groups):
                return (match[int(digits[:end])] or "") + digits[end:]
        return reference[0]

    return re.sub(_REFERENCE, one, replacement)
