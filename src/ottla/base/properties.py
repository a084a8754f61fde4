r"""Parser for Java's .properties text: keys and values with their line numbers.

The rules are those of java.util.Properties: `#` and `!` start a comment line; a key ends at the first `=`, `:` or blank
that has no backslash before it; a line that ends in an odd number of backslashes continues on the next one, whose
leading blanks are ignored; `\t \n \r \f \uXXXX` are escapes and a backslash before any other character is dropped;
blanks at the end of a value stay. The last value of a repeated key wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX = frozenset("0123456789abcdefABCDEF")


class PropertiesError(ValueError):
    """Invalid .properties text, with the line of the error."""

    def __init__(self, line: int, cause: str) -> None:
        super().__init__(cause)
        self.line = line
        self.cause = cause


class Property(NamedTuple):
    """One key and value, and the line where it starts."""

    name: str
    value: str
    line: int


def read_properties(text: str) -> dict[str, str]:
    """The keys and values of a text; the last of several equal keys wins."""
    return {item.name: item.value for item in parse_properties(text)}


def parse_properties(text: str) -> Iterator[Property]:
    """Every key and value in the order of the text."""
    for line, content in _logical_lines(text):
        key_end, value_start = _separator(content)
        yield Property(_unescape(content[:key_end], line), _unescape(content[value_start:], line), line)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined at trailing backslashes, without blank and comment lines."""
    parts: list[str] = []
    start = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        content = natural.lstrip(_BLANKS)
        if not parts:
            if not content or content[0] in "#!":
                continue
            start = number
        if _is_continued(content):
            parts.append(content[:-1])
            continue
        yield start, "".join((*parts, content))
        parts = []
    if any(parts):
        yield start, "".join(parts)


def _is_continued(content: str) -> bool:
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def _separator(content: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    end = 0
    while end < len(content) and content[end] not in "=: \t\f":
        end += 2 if content[end] == "\\" else 1
    end = min(end, len(content))
    start = end
    while start < len(content) and content[start] in _BLANKS:
        start += 1
    if start < len(content) and content[start] in "=:":
        start += 1
        while start < len(content) and content[start] in _BLANKS:
            start += 1
    return end, start


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter != "\\":
            parts.append(letter)
            position += 1
        elif text[position + 1 : position + 2] == "u":
            parts.append(_unicode_escape(text[position + 2 : position + 6], line))
            position += 6
        else:
            escaped = text[position + 1 : position + 2]
            parts.append(_ESCAPES.get(escaped, escaped))
            position += 2
    # Two escapes may be a surrogate pair; a lone surrogate cannot be encoded.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode_escape(digits: str, line: int) -> str:
    if len(digits) != 4 or not _HEX.issuperset(digits):
        raise PropertiesError(line, f"\\u{digits} is no character: write \\u and four hexadecimal digits")
    return chr(int(digits, 16))
