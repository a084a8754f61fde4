"""JAAS: login modules in the syntax of Java's login configuration.

There are two forms: a file with named sections, each with login modules, and the value of `sasl.jaas.config`, which is
one module without a section. Both are read as Java and Kafka read them.

Rules:
1. The login of a listener is looked up in its own setting (`listener.name.<listener>.<mechanism>.sasl.jaas.config`),
   then in the section `<listener>.KafkaServer` of the file, then in `KafkaServer`. The login of a client is looked up
   in `sasl.jaas.config`, then in `KafkaClient` of the configured file, or of `jaas.conf` in the working directory.
2. Invalid configurations raise JaasError with the line and the cause. It quotes only class names and known options.
3. A module must be one of LOGIN_MODULES, and allowed by the Java properties: there is no JVM to load another class.
4. Java ends a text without its closing quote at the end of the line, and treats a bare `/` as a comment. Both change
   the password silently, so both are errors here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.environment import java_options

VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "KAFKA_OPTS")  # the later one takes precedence


def java_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The Java system properties of a process with this environment."""
    return {
        name: value for variable in VARIABLES for name, value in java_options(environment.get(variable, "")).items()
    }


FILE_BYTES_MAX: Final = 1024 * 1024
DEFAULT_FILE: Final = "jaas.conf"
FILE_PROPERTY: Final = "java.security.auth.login.config"
SERVER_SECTION: Final = "KafkaServer"
CLIENT_SECTION: Final = "KafkaClient"
ZOOKEEPER_SECTION: Final = "Client"
JAAS_CONFIG: Final = "sasl.jaas.config"
FLAGS: Final = ("required", "requisite", "sufficient", "optional")

LOGIN_MODULES: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "com.sun.security.auth.module.Krb5LoginModule",
    "com.ibm.security.auth.module.Krb5LoginModule",
)
OPTIONS: Final = frozenset(
    {
        *("username", "password", "tokenauth", "clientId", "clientSecret", "scope"),
        *("keyTab", "principal", "useKeyTab", "useTicketCache", "ticketCache", "storeKey", "serviceName"),
    }
)
USER: Final = "user_"
ALLOWED_PROPERTY: Final = "org.apache.kafka.allowed.login.modules"
DISALLOWED_PROPERTY: Final = "org.apache.kafka.disallowed.login.modules"
DISALLOWED: Final = "com.sun.security.auth.module.JndiLoginModule,com.sun.security.auth.module.LdapLoginModule"
_CLASS: Final = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+")

MODULE_NAME_PARTS: Final = {
    "PLAIN": "PlainLogin",
    "SCRAM-SHA-256": "ScramLogin",
    "SCRAM-SHA-512": "ScramLogin",
    "OAUTHBEARER": "OAuthBearerLogin",
    "GSSAPI": "Krb5Login",
}

# A word consists of letters, digits, _ $ * . - and non-ASCII characters, and does not start with a digit, . or -. The
# classes list excluded characters: compiling ranges up to the end of Unicode takes 60 ms.
_TOKEN: Final = re.compile(
    r"""(?P<space>[\x00-\x20]+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<open_comment>/\*)
    | (?P<quoted>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    | (?P<open_quote>["'])
    | (?P<word>[^\x00-\x23%-)+-@\[-\^`{-\x9f][^\x00-\x23%-)+,/:-@\[-\^`{-\x9f]*)
    | (?P<bare>[0-9.\-/][^\s;{}="']*)
    | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)")
_ESCAPED: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}


class JaasError(ValueError):
    """An invalid login configuration."""

    def __init__(self, cause: str, line: int | None = None) -> None:
        super().__init__(cause if line is None else f"line {line}: {cause}")
        self.cause = cause
        self.line = line


class JaasMissingError(JaasError):
    """There is no login configuration."""


class AppConfigurationEntry:
    """One login module: the Java class, and its options, which may be secret."""

    def __init__(self, name: str, flag: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.flag = flag
        self.options = dict(options)

    @property
    def short_name(self) -> str:
        """The class name without its package: `PlainLoginModule`."""
        return self.name.rpartition(".")[2]

    def is_true(self, option: str) -> bool:
        return self.options.get(option, "").lower() == "true"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AppConfigurationEntry) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<AppConfigurationEntry {self.name} {self.flag} {len(self.options)} options>"


Sections = dict[str, tuple[AppConfigurationEntry, ...]]


def parse_sections(text: str) -> Sections:
    """Return the sections of a file, in order."""
    reader = _Reader(text)
    found: Sections = {}
    while not reader.is_at_end():
        line = reader.line
        name = reader.word("the name of a section")
        if name in found:
            raise JaasError(f"there are two sections {name}", line)
        reader.expect_sign("{", f"after {name}")
        modules = []
        while not reader.skip_sign("}"):
            modules.append(_module(reader))
        reader.expect_sign(";", f"after the }} of {name}")
        if not modules:
            raise JaasError(f"section {name} has no login module", line)
        found[name] = tuple(modules)
    return found


def parse_value(text: str) -> AppConfigurationEntry:
    """Return the one module in a value of `sasl.jaas.config`."""
    reader = _Reader(text)
    if reader.is_at_end():
        raise JaasError("Login module not specified in JAAS config")
    module = _module(reader)
    if not reader.is_at_end():
        raise JaasError("JAAS config property contains more than one login module, should be 1 module", reader.line)
    return module


def read_sections(path: str) -> Sections:
    """Return the sections of the file at `path`; a JaasError contains the path."""
    try:
        with open(path, "rb") as file:
            data: bytes = file.read(FILE_BYTES_MAX + 1)
    except OSError as problem:
        raise JaasError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise JaasError(f"{path} is larger than {FILE_BYTES_MAX} bytes: is it a login configuration?")
    try:
        return parse_sections(data.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise JaasError(f"{path}, line {line}: this is not UTF-8 text") from None
    except JaasError as problem:
        raise JaasError(f"{path}, {problem}" if problem.line is not None else f"{path}: {problem}") from None


def escaped(text: str) -> str:
    """Return a name or a password for use between double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def configured_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the file of `KAFKA_OPTS=-Djava.security.auth.login.config=...`, as Kafka's scripts pass it to Java."""
    return java_properties(environment).get(FILE_PROPERTY) or None


class ServerJaasConfig(NamedTuple):
    """The login configuration of a broker: its settings, and its JAAS file."""

    values: Mapping[str, str]
    """Settings that end in `.sasl.jaas.config`, by full name."""
    path: str | None
    sections: Sections
    java: Mapping[str, str] = {}
    """Java system properties; some restrict the allowed modules."""

    def module_of(self, listener: str, mechanism: str) -> AppConfigurationEntry:
        """Return the login module of a mechanism on a listener (rule 1)."""
        key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
        value = self.values.get(key)
        if value is not None:
            try:
                return check_modules((parse_value(value),), self.java)[0]
            except JaasError as problem:
                raise JaasError(f"{key}: {problem}") from None
        own = f"{listener.lower()}.{SERVER_SECTION}"
        modules = self.sections.get(own) or self.sections.get(SERVER_SECTION)
        if modules is None:
            where = f"{self.path} has neither" if self.path else f"System property '{FILE_PROPERTY}' is not set, nor is"
            raise JaasMissingError(
                f"Could not find a '{SERVER_SECTION}' or '{own}' entry in the JAAS configuration. {where}"
                + ("" if self.path else f" {key}")
            )
        try:
            return choose_module(check_modules(modules, self.java), mechanism)
        except JaasError as problem:
            raise JaasError(f"{self.path}: {problem}") from None


def check_modules(
    modules: tuple[AppConfigurationEntry, ...], java: Mapping[str, str]
) -> tuple[AppConfigurationEntry, ...]:
    """Return the modules, if all of them are allowed (rule 3). Raises JaasError."""
    allowed, disallowed = java.get(ALLOWED_PROPERTY), java.get(DISALLOWED_PROPERTY, DISALLOWED)
    for module in modules:
        name = module.name.strip()
        if name not in _names(allowed) if allowed is not None else name in _names(disallowed):
            raise JaasError(
                f"{_printable_name(name)} is not allowed by the Java properties {ALLOWED_PROPERTY} and "
                f"{DISALLOWED_PROPERTY}, "
                f"of which the second names {DISALLOWED} unless it is set"
            )
        if name not in LOGIN_MODULES:
            raise JaasError(
                f"No LoginModule found for {_printable_name(name)}: there is no JVM to load classes, and known are "
                f"{', '.join(LOGIN_MODULES)}"
            )
    return modules


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def choose_module(modules: tuple[AppConfigurationEntry, ...], mechanism: str) -> AppConfigurationEntry:
    """Return the module of a section for a mechanism; the first one if none matches by name."""
    words = MODULE_NAME_PARTS.get(mechanism)
    for module in modules:
        if words is not None and words in module.short_name:
            return module
    return modules[0]


def client_module(
    properties: Mapping[str, str], mechanism: str, sections: Sections | None = None
) -> AppConfigurationEntry | None:
    """Return the login module of a client; None if neither its properties nor a file have one."""
    value = properties.get(JAAS_CONFIG)
    if value is not None and value.strip():
        try:
            return check_modules((parse_value(value),), java_properties(os.environ))[0]
        except JaasError as problem:
            raise JaasError(f"{JAAS_CONFIG}: {problem}") from None
    if sections is None:
        path = configured_file() or (DEFAULT_FILE if os.path.exists(DEFAULT_FILE) else None)
        sections = read_sections(path) if path is not None else {}
    modules = sections.get(CLIENT_SECTION)
    return choose_module(check_modules(modules, java_properties(os.environ)), mechanism) if modules else None


def _module(reader: _Reader) -> AppConfigurationEntry:
    name = reader.word("the class of a login module")
    line = reader.line
    flag = reader.word(f"required, requisite, sufficient or optional after {_printable_name(name)}")
    if flag.lower() not in FLAGS:
        raise JaasError(f"what follows {_printable_name(name)} is not one of {', '.join(FLAGS)}", line)
    options: dict[str, str] = {}
    while not reader.skip_sign(";"):
        key = reader.word("an option of the login module, or ;")
        reader.expect_sign("=", "after the name of an option")
        options[key] = reader.word(f"the value of {key if key in OPTIONS or key.startswith(USER) else 'an option'}")
    return AppConfigurationEntry(name, flag.lower(), options)


def _printable_name(name: str) -> str:
    """Return a name for messages.

    Only class names and known options are quoted: other text may be part of a password.
    """
    return name if _CLASS.fullmatch(name) else "a login module"


class _Token(NamedTuple):
    kind: str  # "word" or "sign" or "bare"
    text: str
    line: int


class _Reader:
    """The tokens of a text, in order."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._last_line = text.count("\n") + 1

    def is_at_end(self) -> bool:
        return self._at == len(self._tokens)

    @property
    def line(self) -> int:
        return self._last_line if self.is_at_end() else self._tokens[self._at].line

    def word(self, what: str) -> str:
        """Return the next word; a quoted one without its quotes."""
        token = self._next(what)
        if token.kind == "bare":
            raise JaasError(f"{what} begins with a digit or a sign: put it in double quotes", token.line)
        if token.kind != "word":
            raise JaasError(f"expected {what}", token.line)
        return token.text

    def expect_sign(self, sign: str, where: str) -> None:
        token = self._next(f"{sign} {where}")
        if token.kind != "sign" or token.text != sign:
            raise JaasError(f"expected {sign} {where}", token.line)

    def skip_sign(self, sign: str) -> bool:
        """Return whether the next token is this sign; if so, it is consumed."""
        if self.is_at_end():
            raise JaasError(f"the text ends where {sign} is expected", self._last_line)
        token = self._tokens[self._at]
        is_it = token.kind == "sign" and token.text == sign
        self._at += is_it
        return is_it

    def _next(self, what: str) -> _Token:
        if self.is_at_end():
            raise JaasError(f"the text ends where {what} is expected", self._last_line)
        self._at += 1
        return self._tokens[self._at - 1]


def _tokens(text: str) -> list[_Token]:
    found = []
    line = 1
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "open_quote":
            raise JaasError(f"a text that begins with {token} is not closed on its line", line)
        if kind == "open_comment":
            raise JaasError("a comment that begins with /* is not closed", line)
        if kind == "quoted":
            found.append(_Token("word", _unescape(token[1:-1]), line))
        elif kind in ("word", "bare", "sign"):
            found.append(_Token(kind, token, line))
        line += token.count("\n")
    return found


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
