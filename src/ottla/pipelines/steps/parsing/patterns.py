"""Regular expressions and grok patterns of pipelines, in RE2's syntax: no text can make one run forever or overflow a
stack.

Grok patterns combine named expressions, for logs. `%{IP:client}` is an address with the field name client;
`%{NUMBER:bytes:int}` is a number read as an int; `%{WORD}` is a word without a field. Text between them is a regular
expression. The names are the common ones; the expressions are written for RE2, without look-around and back-references.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.base.regular_expressions import OPERATOR, PatternError, compile_pattern
from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type

LIMITS = OPERATOR._replace(length=100_000)

DEPTH_MAX = 20
LENGTH_MAX = 100_000
REFERENCE = re.compile(r"%\{([A-Za-z0-9_]+)(?::([^:}]+))?(?::([^}]+))?\}")
FIELD_NAME = re.compile(r"[A-Za-z@\[][A-Za-z0-9_.@\[\]-]*")
MONTHS = (
    "Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?|Oct(?:ober)?|"
    "Nov(?:ember)?|Dec(?:ember)?"
)
LEVELS = (
    "trace|debug|info(?:rmation)?|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|alert|fatal|severe|emerg(?:ency)?|panic"
)
PATTERNS: dict[str, str] = {
    # words and numbers
    "WORD": r"\b\w+\b",
    "NOTSPACE": r"\S+",
    "SPACE": r"\s*",
    "DATA": r".*?",
    "GREEDYDATA": r".*",
    "INT": r"[+-]?[0-9]+",
    "POSINT": r"\b[1-9][0-9]*\b",
    "NONNEGINT": r"\b[0-9]+\b",
    "BASE10NUM": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)",
    "NUMBER": r"%{BASE10NUM}(?:[eE][+-]?[0-9]+)?",
    "BASE16NUM": r"[+-]?(?:0x)?[0-9A-Fa-f]+",
    "QUOTEDSTRING": r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""",
    "QS": r"%{QUOTEDSTRING}",
    "UUID": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "BOOLEAN": r"\b(?i:true|false|yes|no|on|off)\b",
    # users and hosts
    "USERNAME": r"[a-zA-Z0-9._-]+",
    "USER": r"%{USERNAME}",
    "EMAILLOCALPART": r"[a-zA-Z0-9!#$%&'*+/=?^_{|}~.-]{1,64}",
    "EMAILADDRESS": r"%{EMAILLOCALPART}@%{HOSTNAME}",
    "HTTPDUSER": r"(?:%{EMAILADDRESS}|%{USER})",
    "IPV4": r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})",
    "IPV6": r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:%{IPV4}|[0-9A-Fa-f]{0,4})(?:%[0-9A-Za-z]+)?",
    "IP": r"(?:%{IPV4}|%{IPV6})",
    "HOSTNAME": r"\b[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62})(?:\.[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62}))*\.?",
    "HOST": r"%{HOSTNAME}",
    "IPORHOST": r"(?:%{IP}|%{HOSTNAME})",
    "HOSTPORT": r"%{IPORHOST}:%{POSINT}",
    "MAC": r"(?:[A-Fa-f0-9]{2}[:-]){5}[A-Fa-f0-9]{2}",
    # paths and addresses
    "UNIXPATH": r"(?:/[^\s/]*)+",
    "WINPATH": r"(?:[A-Za-z]+:|\\)(?:\\[^\\?*]*)+",
    "PATH": r"(?:%{UNIXPATH}|%{WINPATH})",
    "URIPROTO": r"[A-Za-z](?:[A-Za-z0-9+\-.]+)",
    "URIHOST": r"%{IPORHOST}(?::%{POSINT})?",
    "URIPATH": r"(?:/[A-Za-z0-9$.+!*'(){},~:;=@#%&_\-]*)+",
    "URIQUERY": r"[A-Za-z0-9$.+!*'|(){},~@#%&/=:;_?\-\[\]<>]*",
    "URIPARAM": r"\?%{URIQUERY}",
    "URIPATHPARAM": r"%{URIPATH}(?:%{URIPARAM})?",
    "URI": r"%{URIPROTO}://(?:%{USER}(?::[^@]*)?@)?(?:%{URIHOST})?(?:%{URIPATHPARAM})?",
    # times
    "MONTH": rf"\b(?:{MONTHS})\b",
    "MONTHNUM": r"(?:0?[1-9]|1[0-2])",
    "MONTHDAY": r"(?:0[1-9]|[12][0-9]|3[01]|[1-9])",
    "DAY": r"(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)",
    "YEAR": r"[0-9]{4}|[0-9]{2}",
    "HOUR": r"(?:2[0123]|[01]?[0-9])",
    "MINUTE": r"[0-5][0-9]",
    "SECOND": r"(?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?",
    "TIME": r"%{HOUR}:%{MINUTE}(?::%{SECOND})?",
    "ISO8601_TIMEZONE": r"(?:Z|[+-]%{HOUR}(?::?%{MINUTE})?)",
    "TIMESTAMP_ISO8601": r"[0-9]{4}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?"
                         r"(?:%{ISO8601_TIMEZONE})?",
    "HTTPDATE": r"%{MONTHDAY}/%{MONTH}/[0-9]{4}:%{TIME} [+-][0-9]{4}",
    "SYSLOGTIMESTAMP": r"%{MONTH} +%{MONTHDAY} %{TIME}",
    "DATESTAMP_RFC2822": r"%{DAY}, %{MONTHDAY} %{MONTH} [0-9]{4} %{TIME} (?:[+-][0-9]{4}|[A-Z]{3})",
    "HTTPDERROR_DATE": r"%{DAY} %{MONTH} %{MONTHDAY} %{TIME} [0-9]{4}",
    "NGINXERROR_DATE": r"[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:]{8}",
    "LOGLEVEL": rf"\b(?i:{LEVELS})\b",
    # whole lines
    "PROG": r"[^\s\[\]:]+",
    "SYSLOGPROG": r"%{PROG:program}(?:\[%{POSINT:pid:int}\])?",
    "SYSLOGHOST": r"%{IPORHOST}",
    "SYSLOGFACILITY": r"<%{NONNEGINT:priority:int}>",
    "SYSLOGBASE": r"%{SYSLOGTIMESTAMP:timestamp} %{SYSLOGHOST:logsource} %{SYSLOGPROG}:",
    "SYSLOGLINE": r"(?:%{SYSLOGFACILITY})?%{SYSLOGBASE} %{GREEDYDATA:message}",
    "SYSLOG5424LINE": r"<%{NONNEGINT:priority:int}>%{NONNEGINT:version:int} (?:%{TIMESTAMP_ISO8601:timestamp}|-) "
                      r"%{NOTSPACE:logsource} %{NOTSPACE:program} %{NOTSPACE:pid} %{NOTSPACE:msgid} "
                      r"(?:-|%{SYSLOG5424SD:structured_data})(?: %{GREEDYDATA:message})?",
    "SYSLOG5424SD": r"""(?:\[[^\]"\s]+(?: [^\]"=\s]+="(?:[^"\\]|\\.)*")*\])+""",
    "HTTPREQUEST": r"(?:%{WORD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?|"
                   r"%{HTTPRAWREQUEST:rawrequest})",
    "HTTPRAWREQUEST": r"""(?:[^"\\]|\\.)*""",
    "COMMONAPACHELOG": r"%{IPORHOST:clientip} %{HTTPDUSER:ident} %{HTTPDUSER:auth} \[%{HTTPDATE:timestamp}\] "
                       r""""%{HTTPREQUEST}" %{INT:response:int} (?:%{INT:bytes:long}|-)""",
    "COMBINEDAPACHELOG": r"""%{COMMONAPACHELOG} "%{HTTPRAWREQUEST:referrer}" "%{HTTPRAWREQUEST:agent}\"""",
    "NGINXACCESS": r"%{COMBINEDAPACHELOG}(?: .*)?",
    "HTTPDERROR": r"\[%{HTTPDERROR_DATE:timestamp}\] \[(?:%{WORD:module})?:?%{LOGLEVEL:loglevel}\] "
                  r"(?:\[pid %{POSINT:pid:int}(?::tid %{NONNEGINT:tid})?\] )?"
                  r"(?:\[client %{IPORHOST:clientip}(?::%{POSINT:clientport:int})?\] )?%{GREEDYDATA:message}",
    "NGINXERROR": r"%{NGINXERROR_DATE:timestamp} \[%{LOGLEVEL:loglevel}\] %{POSINT:pid:int}#%{NONNEGINT:tid:int}: "
                  r"(?:\*%{NONNEGINT:connection:long} )?%{GREEDYDATA:message}",
}  # fmt: skip


def check_pattern(pattern: str) -> str | None:
    """Why this is not a regular expression, or None."""
    try:
        compile_pattern(pattern, limits=LIMITS)
    except PatternError as problem:
        said = str(problem)
        hint = "; look-around and back-references are not possible" if re.search(r"perl operator|escape", said) else ""
        return said + hint
    return None


def group_names(pattern: str) -> list[str]:
    """The named groups, in order. The pattern must be valid."""
    return list(compile_pattern(to_re2(pattern), limits=LIMITS, has_groups=True).groupindex)


def unnamed_groups(pattern: str) -> int:
    compiled = compile_pattern(to_re2(pattern), limits=LIMITS, has_groups=True)
    return int(compiled.groups) - len(compiled.groupindex)


def to_re2(pattern: str) -> str:
    """Convert `(?<name>` to RE2's `(?P<name>`."""
    return re.sub(r"\(\?<([A-Za-z_])", r"(?P<\1", pattern)


class GrokPattern(NamedTuple):
    """`pattern` is for RE2; `groups` map fields to groups, `types` map fields to the types in the pattern."""

    pattern: str
    groups: tuple[tuple[str, str], ...]
    types: dict[str, str]


class GrokError(ValueError):
    """The text says what is wrong with the pattern."""


def read_grok(text: str, own: dict[str, str] | None = None) -> GrokPattern:
    """Raises GrokError."""
    known = {**PATTERNS, **(own or {})}
    writer = _GrokExpander(known)
    pattern = f"^(?:{writer.expand(text, 0)})$"
    problem = check_pattern(pattern)
    if problem:
        raise GrokError(f"is not a pattern: {problem}")
    if not writer.groups:
        raise GrokError("names no field: write %{NAME:field}")
    for field, kind in writer.types.items():
        try:
            parse_type(kind)
        except SchemaError as wrong:
            raise GrokError(f"field {field!r}: {wrong}") from None
    return GrokPattern(pattern, tuple(writer.groups.items()), writer.types)


class _GrokExpander:
    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.groups: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.length = 0

    def expand(self, text: str, depth: int) -> str:
        if depth > DEPTH_MAX:
            raise GrokError("uses recursive patterns")
        self.length += len(text)
        if self.length > LENGTH_MAX:
            raise GrokError("expands to too much text")
        return REFERENCE.sub(lambda use: self._replace(use[1], use[2], use[3], depth), self._own_groups(text))

    def _replace(self, name: str, field: str | None, kind: str | None, depth: int) -> str:
        if name not in self.known:
            raise GrokError(f"there is no pattern {name!r}")
        # before the expansion: fields are in the order of the text
        start = f"(?P<{self._group(field, kind)}>" if field else "(?:"
        return f"{start}{self.expand(self.known[name], depth + 1)})"

    def _own_groups(self, text: str) -> str:
        """`(?<field>…)` is a field as well."""
        return re.sub(r"\(\?P?<([A-Za-z][A-Za-z0-9_]*)>", lambda use: f"(?P<{self._group(use[1], None)}>", text)

    def _group(self, field: str, kind: str | None) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "_", field.lstrip("@").strip("[]"))  # [http][method] -> http_method
        if not FIELD_NAME.fullmatch(field):
            raise GrokError(f"{field!r} is not a valid field name")
        if name in self.groups:
            raise GrokError(f"field {name!r} appears twice")
        self.groups[name] = f"g{len(self.groups)}"
        if kind:
            self.types[name] = kind
        return self.groups[name]
