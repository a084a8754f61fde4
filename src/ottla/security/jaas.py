"""JAAS: who logs in as what, in the words of Java's login configuration.

Two forms, read as Java and Kafka read them: a file with named sections, each with login modules, and the value of
`sasl.jaas.config`, which is one module without a section.

Rules:
1. A listener's login is looked for in its own setting (`listener.name.<listener>.<mechanism>.sasl.jaas.config`), then
   in the file's section `<listener>.KafkaServer`, then in `KafkaServer`; a client's in `sasl.jaas.config`, then in
   `KafkaClient` of the file that is named for it, or else of `jaas.conf` in the working folder.
2. What is wrong raises JaasError, which names the line and the cause and never the value of an option.
3. Java ends a text without its closing quote at the end of the line, and takes a bare `/` for a comment: both make
   another password than was meant, so both are errors here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.security.java_options import java_properties

FILE_BYTES_MAX: Final = 1024 * 1024
FILE_HERE: Final = "jaas.conf"
FILE_PROPERTY: Final = "java.security.auth.login.config"
SERVER_SECTION: Final = "KafkaServer"
CLIENT_SECTION: Final = "KafkaClient"
ZOOKEEPER_SECTION: Final = "Client"
JAAS_CONFIG: Final = "sasl.jaas.config"
FLAGS: Final = ("required", "requisite", "sufficient", "optional")

MODULE_WORDS: Final = {
    "PLAIN": "PlainLogin",
    "SCRAM-SHA-256": "ScramLogin",
    "SCRAM-SHA-512": "ScramLogin",
    "OAUTHBEARER": "OAuthBearerLogin",
    "GSSAPI": "Krb5Login",
}

# A word is made of letters, digits, _ $ * . - and whatever is not ASCII, and does not begin with a digit, . or -. The
# classes name what it is not: to compile ranges up to the end of Unicode takes 60 ms.
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
    """A login configuration that cannot be used."""

    def __init__(self, cause: str, line: int | None = None) -> None:
        super().__init__(cause if line is None else f"line {line}: {cause}")
        self.cause = cause
        self.line = line


class JaasMissingError(JaasError):
    """Nothing says how to log in."""


class LoginModule:
    """One way to log in: the class that Java would use, and its options, which may be secret."""

    def __init__(self, name: str, flag: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.flag = flag
        self.options = dict(options)

    @property
    def short_name(self) -> str:
        """The class without its package: `PlainLoginModule`."""
        return self.name.rpartition(".")[2]

    def is_true(self, option: str) -> bool:
        return self.options.get(option, "").lower() == "true"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoginModule) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<LoginModule {self.name} {self.flag} {len(self.options)} options>"


Sections = dict[str, tuple[LoginModule, ...]]


def parse_sections(text: str) -> Sections:
    """The sections of a file, in its order."""
    reader = _Reader(text)
    found: Sections = {}
    while not reader.is_at_end():
        line = reader.line
        name = reader.word("the name of a section")
        if name in found:
            raise JaasError(f"there are two sections {name}", line)
        reader.sign("{", f"after {name}")
        modules = []
        while not reader.skips("}"):
            modules.append(_module(reader))
        reader.sign(";", f"after the }} of {name}")
        if not modules:
            raise JaasError(f"section {name} has no login module", line)
        found[name] = tuple(modules)
    return found


def parse_value(text: str) -> LoginModule:
    """The one module that a value of `sasl.jaas.config` holds."""
    reader = _Reader(text)
    if reader.is_at_end():
        raise JaasError("Login module not specified in JAAS config")
    module = _module(reader)
    if not reader.is_at_end():
        raise JaasError("JAAS config property contains more than one login module, should be 1 module", reader.line)
    return module


def read_sections(path: str) -> Sections:
    """The sections of the file at `path`; JaasError names it."""
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
    """A name or a password as it stands between double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def named_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """The file that `KAFKA_OPTS=-Djava.security.auth.login.config=...` names, as Kafka's scripts hand it to Java."""
    return java_properties(environment).get(FILE_PROPERTY) or None


class ServerLogins(NamedTuple):
    """What a broker knows about logins: its settings, and the file that was named for it."""

    values: Mapping[str, str]
    """Settings that end in `.sasl.jaas.config`, under their whole names."""
    path: str | None
    sections: Sections

    def module_of(self, listener: str, mechanism: str) -> LoginModule:
        """The login module of a mechanism on a listener (rule 1)."""
        key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
        value = self.values.get(key)
        if value is not None:
            try:
                return parse_value(value)
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
        return choose_module(modules, mechanism)


def choose_module(modules: tuple[LoginModule, ...], mechanism: str) -> LoginModule:
    """The module of a section that a mechanism is about; the first one if none is known by its name."""
    words = MODULE_WORDS.get(mechanism)
    for module in modules:
        if words is not None and words in module.short_name:
            return module
    return modules[0]


def client_module(
    properties: Mapping[str, str], mechanism: str, sections: Sections | None = None
) -> LoginModule | None:
    """The login module of a client; None if neither its properties nor a file have one."""
    value = properties.get(JAAS_CONFIG)
    if value is not None and value.strip():
        try:
            return parse_value(value)
        except JaasError as problem:
            raise JaasError(f"{JAAS_CONFIG}: {problem}") from None
    if sections is None:
        path = named_file() or (FILE_HERE if os.path.exists(FILE_HERE) else None)
        sections = read_sections(path) if path is not None else {}
    modules = sections.get(CLIENT_SECTION)
    return choose_module(modules, mechanism) if modules else None


def _module(reader: _Reader) -> LoginModule:
    name = reader.word("the class of a login module")
    line = reader.line
    flag = reader.word(f"required, requisite, sufficient or optional after {name}")
    if flag.lower() not in FLAGS:
        raise JaasError(f"what follows {name} is not one of {', '.join(FLAGS)}", line)
    options: dict[str, str] = {}
    while not reader.skips(";"):
        key = reader.word(f"an option of {name}, or ;")
        reader.sign("=", f"after the name of an option of {name}")  # without the name: it may be half a password
        options[key] = reader.word(f"the value of {key}")
    return LoginModule(name, flag.lower(), options)


class _Token(NamedTuple):
    kind: str  # "word" or "sign" or "bare"
    text: str
    line: int


class _Reader:
    """Words and signs of a text, one after the other."""

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
        """The next word, which must be there; a quoted one without its quotes."""
        token = self._next(what)
        if token.kind == "bare":
            raise JaasError(f"{what} begins with a digit or a sign: put it in double quotes", token.line)
        if token.kind != "word":
            raise JaasError(f"expected {what}", token.line)
        return token.text

    def sign(self, sign: str, where: str) -> None:
        token = self._next(f"{sign} {where}")
        if token.kind != "sign" or token.text != sign:
            raise JaasError(f"expected {sign} {where}", token.line)

    def skips(self, sign: str) -> bool:
        """Whether the next token is this sign, which is then taken."""
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
