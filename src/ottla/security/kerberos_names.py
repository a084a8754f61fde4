"""Short names of Kerberos principals: `sasl.kerberos.principal.to.local.rules`, as Kafka applies them.

1. The first matching rule decides. `DEFAULT` matches principals of the default realm and returns their first part.
2. `RULE:[n:string](regexp)s/pattern/replacement/g/L`: for principals of n parts before the realm. `$0` in the string is
   the realm, `$1` and `$2` are the parts. The regexp must match the whole string; `g` replaces every match instead of
   the first; `/L` and `/U` make the result lower or upper case.
3. A result with `/` or `@` is not a short name: the login fails.
4. Pure: no file, no clock. Patterns and replacements are Java's (`$1` is a group, a backslash quotes).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ottla.base.regular_expressions import PatternError, compile_java_pattern

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)\]"
    r"(?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?"
    r"/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d*)")
_REPLACEMENT: Final = re.compile(r"\\(.)|\$(?:(\d)|\{(\w+)\})", re.DOTALL)


class KerberosNameError(ValueError):
    """A rule or a principal that gives no short name."""


class KerberosName(NamedTuple):
    """The parts of a principal: `kafka/host@REALM`; missing parts are None."""

    service: str
    host: str | None = None
    realm: str | None = None

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}" + ("" if self.realm is None else f"@{self.realm}")


def parse_name(text: str) -> KerberosName:
    match = _NAME.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[2], match[3])
    if "@" in text:
        raise KerberosNameError(f"Malformed Kerberos name: {text}")
    return KerberosName(text)


class KerberosRule(NamedTuple):
    """One parsed rule. Without a number of parts it is DEFAULT."""

    text: str
    parts: int | None = None
    format: str = ""
    match: Any = None
    pattern: Any = None
    replacement: str = ""
    is_global: bool = False
    case: str | None = None

    def apply(self, values: Sequence[str], default_realm: str) -> str | None:
        """Return the short name of a principal (its realm, then its parts); None if the rule does not match."""
        result: str | None = None
        if self.parts is None:
            result = values[1] if values[0] == default_realm else None
        elif len(values) - 1 == self.parts:
            base = self._format_base(values)
            if self.match is None or self.match.fullmatch(base):
                result = base if self.pattern is None else self._replaced(self.pattern, base)
        if result is None:
            return None
        if "/" in result or "@" in result:
            raise KerberosNameError(f"Non-simple name {result} after auth_to_local rule {self.text}")
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _format_base(self, values: Sequence[str]) -> str:
        def value(match: re.Match[str]) -> str:
            number = int(match[1])
            if number >= len(values):
                most = len(values) - 1
                raise KerberosNameError(f"index {number} from {self.format} is outside of the valid range 0 to {most}")
            return values[number]

        return _PARAMETER.sub(value, self.format)

    def _replaced(self, pattern: re.Pattern[str], base: str) -> str:
        def text_of(found: re.Match[str]) -> str:
            def group(match: re.Match[str]) -> str:
                if match[1] is not None:
                    return match[1]
                return found[int(match[2]) if match[2] is not None else match[3]] or ""

            return _REPLACEMENT.sub(group, self.replacement)

        return pattern.sub(text_of, base, count=0 if self.is_global else 1)


class KerberosShortNamer:
    """All rules of a listener, in order."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        """Parse the rules. Raises KerberosNameError for a rule that Kafka would reject."""
        self.rules = tuple(parse_rule(rule) for rule in rules) or (parse_rule("DEFAULT"),)
        self.default_realm = default_realm

    def short_name(self, principal: str) -> str:
        """Return the short name: `alice` for `alice@REALM`. Raises KerberosNameError if no rule matches."""
        name = parse_name(principal)
        if name.realm is None and name.host is None:
            return name.service
        values = [part for part in (name.realm, name.service, name.host) if part is not None]
        for rule in self.rules:
            found = rule.apply(values, self.default_realm)
            if found is not None:
                return found
        texts = ", ".join(rule.text for rule in self.rules)
        raise KerberosNameError(f"No rules apply to {principal}, rules [{texts}]")

    def __repr__(self) -> str:
        return f"<KerberosShortNamer {len(self.rules)} rules, default realm {self.default_realm}>"


def parse_rule(text: str) -> KerberosRule:
    match = _RULE.match(text)
    if match is None:
        raise KerberosNameError(f"Invalid rule: {text}")
    if match.end() != len(text):
        raise KerberosNameError(f"Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`")
    if match["default"]:
        return KerberosRule(text)
    if not match["parts"] or re.search(r"\$(?!\d)", match["format"]):
        raise KerberosNameError(f"Invalid rule: {text}: `[n:string]` needs a number, and `$` in it a digit")
    pattern = _compiled(match["pattern"], text)
    replacement = match["replacement"] or ""
    _check_replacement(replacement, pattern, text)
    return KerberosRule(
        text,
        int(match["parts"]),
        match["format"],
        _compiled(match["match"], text),
        pattern,
        replacement,
        match["all"] is not None,
        match["case"],
    )


def _compiled(pattern: str | None, text: str) -> Any:
    if pattern is None:
        return None
    try:
        return compile_java_pattern(pattern, has_groups=True)
    except PatternError as problem:
        raise KerberosNameError(f"Invalid rule: {text}: {problem} in {pattern}") from None


def _check_replacement(replacement: str, pattern: re.Pattern[str] | None, text: str) -> None:
    """Check a replacement at the start, instead of failing at a login."""
    groups: set[object] = {0, *range(1, pattern.groups + 1), *pattern.groupindex} if pattern is not None else set()
    for match in _REPLACEMENT.finditer(replacement):
        named = int(match[2]) if match[2] is not None else match[3]
        if match[1] is None and named not in groups:
            raise KerberosNameError(f"Invalid rule: {text}: {match[0]} names no group of the pattern")
    if re.search(r"[\\$]", _REPLACEMENT.sub("", replacement)):
        raise KerberosNameError(f"Invalid rule: {text}: a lone \\ or $ in the replacement")
