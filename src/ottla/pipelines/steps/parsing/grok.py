"""Grok patterns: regular expressions put together from names, for logs.

`%{IP:client}` is an address, called client; `%{NUMBER:bytes:int}` a number, read as an int; `%{WORD}` a word that
nobody needs. What stands between is a regular expression. The names are the usual ones; the expressions are written for
RE2, which knows neither look-around nor back-references and therefore never hangs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.pipelines.steps.parsing.patterns import check_pattern
from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type

DEPTH_MAX = 20
LENGTH_MAX = 100_000
USE = re.compile(r"%\{([A-Za-z0-9_]+)(?::([^:}]+))?(?::([^}]+))?\}")
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
    # people and machines
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


class Grok(NamedTuple):
    """`pattern` is for RE2; `groups` lead from field to group, `types` from field to the type that the pattern gave."""

    pattern: str
    groups: tuple[tuple[str, str], ...]
    types: dict[str, str]


class GrokError(ValueError):
    """The text says what is wrong with a pattern."""


def read_grok(text: str, own: dict[str, str] | None = None) -> Grok:
    """Raises GrokError."""
    known = {**PATTERNS, **(own or {})}
    writer = _Writer(known)
    pattern = f"^(?:{writer.expand(text, 0)})$"
    problem = check_pattern(pattern)
    if problem:
        raise GrokError(f"is no pattern: {problem}")
    if not writer.groups:
        raise GrokError("names no field: write %{NAME:field}")
    for field, kind in writer.types.items():
        try:
            parse_type(kind)
        except SchemaError as wrong:
            raise GrokError(f"field {field!r}: {wrong}") from None
    return Grok(pattern, tuple(writer.groups.items()), writer.types)


class _Writer:
    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.groups: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.length = 0

    def expand(self, text: str, depth: int) -> str:
        if depth > DEPTH_MAX:
            raise GrokError("uses patterns that use themselves")
        self.length += len(text)
        if self.length > LENGTH_MAX:
            raise GrokError("becomes too long")
        return USE.sub(lambda use: self._replace(use[1], use[2], use[3], depth), self._own_groups(text))

    def _replace(self, name: str, field: str | None, kind: str | None, depth: int) -> str:
        if name not in self.known:
            raise GrokError(f"there is no pattern {name!r}")
        start = f"(?P<{self._group(field, kind)}>" if field else "(?:"  # first: fields stand in the order of the text
        return f"{start}{self.expand(self.known[name], depth + 1)})"

    def _own_groups(self, text: str) -> str:
        """`(?<field>…)` is a field, too."""
        return re.sub(r"\(\?P?<([A-Za-z][A-Za-z0-9_]*)>", lambda use: f"(?P<{self._group(use[1], None)}>", text)

    def _group(self, field: str, kind: str | None) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "_", field.lstrip("@").strip("[]"))  # [http][method] -> http_method
        if not FIELD_NAME.fullmatch(field):
            raise GrokError(f"{field!r} is no name for a field")
        if name in self.groups:
            raise GrokError(f"field {name!r} stands there twice")
        self.groups[name] = f"g{len(self.groups)}"
        if kind:
            self.types[name] = kind
        return self.groups[name]
