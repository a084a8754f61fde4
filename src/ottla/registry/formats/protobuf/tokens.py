"""The words of a .proto file, read one behind the other."""

from __future__ import annotations

import re

from ottla.registry.formats.parsed import InvalidSchemaError

TOKEN = re.compile(
    r"""
      (?P<space>    [\s\ufeff]+ | //[^\n]* | /\*(?s:.*?)\*/ )
    | (?P<text>     "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<name>     \.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)* )
    | (?P<number>   0[xX][0-9a-fA-F]+ | (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]? )
    | (?P<symbol>   [{}\[\]()<>;,=:+/-] )
    """,
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
END = ("end", "")


class Tokens:
    """`kind` and `text` are those of the next word, which is not yet taken."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.place = 0
        self.kind, self.text = "", ""
        self.start = 0
        self.step()

    def step(self) -> None:
        while True:
            self.start = self.place
            if self.place == len(self.source):
                self.kind, self.text = END
                return
            found = TOKEN.match(self.source, self.place)
            if found is None:
                raise self.error(f"unexpected character {self.source[self.place]!r}")
            self.place = found.end()
            self.kind, self.text = found.lastgroup or "", found[0]
            if self.kind != "space":
                return

    def take(self, kind: str = "") -> str:
        if kind and self.kind != kind:
            raise self.error(f"expected a {kind} but was {self.text[:50]!r}")
        text = self.text
        self.step()
        return text

    def take_if(self, text: str) -> bool:
        if self.text != text or self.kind == "text":
            return False
        self.step()
        return True

    def expect(self, text: str) -> None:
        if not self.take_if(text):
            raise self.error(f"expected '{text}' but was {self.text[:50]!r}")

    def string(self) -> str:
        """Texts that follow each other are one."""
        parts = [unquoted(self.take("text"))]
        while self.kind == "text":
            parts.append(unquoted(self.take()))
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.take_if("-") else 1
        text = self.take("number")
        try:
            if len(text) > 20:
                raise ValueError(text)
            if text[:2] in ("0x", "0X"):
                return sign * int(text, 16)
            return sign * int(text, 8 if text.startswith("0") else 10)
        except ValueError:
            raise self.error(f"expected an integer but was {text[:50]}") from None

    def error(self, problem: str) -> InvalidSchemaError:
        line = self.source.count("\n", 0, self.start) + 1
        column = self.start - self.source.rfind("\n", 0, self.start)
        return InvalidSchemaError(f"Could not parse Protobuf - Syntax error in :{line}:{column}: {problem}")


def unquoted(text: str) -> str:
    return ESCAPE.sub(unescaped, text[1:-1])


def unescaped(found: re.Match[str]) -> str:
    """A byte that is no letter becomes a lone surrogate, as Python's own surrogateescape tells it."""
    code = found[1]
    if code[0] in "uU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else found[0]
    if code[0] == "x" or code[0] in "01234567":
        byte = int(code[1:], 16) if code[0] == "x" else int(code, 8) & 0xFF
        return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
    return ESCAPED.get(code, code)
