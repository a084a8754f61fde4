"""Parses lines of text into records: `headers TAB key TAB value`, as Kafka's console producer does. Pure.

All data is bytes, so invalid UTF-8 is preserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple, Protocol

from ottla.cli.terminal import ToolError

LINE_BYTES_MAX = 256 * 1024 * 1024
QUOTED_BYTES_MAX = 200

Headers = list[tuple[str, bytes | None]]


class Line(NamedTuple):
    """The record in one line."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None  # None: by the key
    timestamp: int | None = None  # None: now


class LineError(ToolError):
    """An invalid line or reader property, in Kafka's words."""


class RecordReader(Protocol):
    """Parses lines into records; raises LineError."""

    def parse(self, line: bytes, number: int) -> Line: ...


class LineReader:
    """Parses lines with the properties of Kafka's LineMessageReader."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.parse_key = is_enabled(properties, "parse.key")
        self.parse_headers = is_enabled(properties, "parse.headers")
        self.ignore_error = is_enabled(properties, "ignore.error")
        self.key_separator = property_bytes(properties, "key.separator", "\t")
        self.headers_delimiter = property_bytes(properties, "headers.delimiter", "\t")
        self.headers_separator = property_bytes(properties, "headers.separator", ",")
        self.headers_key_separator = property_bytes(properties, "headers.key.separator", ":")
        marker = properties.get("null.marker")
        self.null_marker = None if marker is None else marker.encode("utf-8", "surrogateescape")
        self._check()

    def parse(self, line: bytes, number: int) -> Line:
        """The record in line `number`."""
        position = 0
        raw_headers = key = None
        if self.parse_headers:
            raw_headers, position = self._split(line, number, position, self.headers_delimiter, "headers delimiter")
        if self.parse_key:
            key, position = self._split(line, number, position, self.key_separator, "key separator")
        headers: Headers = []
        if raw_headers is not None and raw_headers != self.null_marker:
            headers = [self._header(pair, number) for pair in raw_headers.split(self.headers_separator)]
        value = line[position:] if position else line
        return Line(self._or_null(key), self._or_null(value), headers)

    def _split(self, line: bytes, number: int, start: int, separator: bytes, name: str) -> tuple[bytes | None, int]:
        """The part before a separator and the position after it. A missing separator is an error unless errors are
        ignored.
        """
        end = line.find(separator, start)
        if end >= 0:
            return line[start:end], end + len(separator)
        if self.ignore_error:
            return None, start
        raise LineError(f"No {name} found on line number {number}: '{_quoted(line)}'")

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        name, separator, value = pair.partition(self.headers_key_separator)
        if not separator and not self.ignore_error:
            raise LineError(f"No header key separator found in pair '{_quoted(pair)}' on line number {number}")
        if name == self.null_marker:
            raise LineError(
                f"Header keys should not be equal to the null marker '{_quoted(name)}' as they can't be null"
            )
        return name.decode("utf-8", "replace"), self._or_null(value) if separator else None

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part

    def _check(self) -> None:
        separators = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        for name, separator in (*separators.items(), ("key.separator", self.key_separator)):
            if not separator:
                raise LineError(f"{name} may not be empty")
        names = list(separators)
        pairs = [(0, 1), (0, 2), (1, 2)] if self.parse_headers else []
        for first, second in pairs:
            if separators[names[first]] == separators[names[second]]:
                raise LineError(f"{names[first]} and {names[second]} may not be equal")
        for name, separator in (("key.separator", self.key_separator), *separators.items()):
            if self.null_marker == separator:
                raise LineError(f"null.marker and {name} may not be equal")


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends, of bounded length."""
    while line := stream.readline(LINE_BYTES_MAX):
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise LineError(f"a line is longer than {LINE_BYTES_MAX} bytes: records that large are not possible")
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def is_enabled(properties: Mapping[str, str], name: str, default: str = "false") -> bool:
    return properties.get(name, default).strip().lower() == "true"


def property_bytes(properties: Mapping[str, str], name: str, default: str) -> bytes:
    return properties.get(name, default).encode("utf-8", "surrogateescape")


def _quoted(line: bytes) -> str:
    text = line[:QUOTED_BYTES_MAX].decode("utf-8", "backslashreplace")
    return text + "..." if len(line) > QUOTED_BYTES_MAX else text
