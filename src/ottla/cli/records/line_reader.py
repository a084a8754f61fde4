"""Lines of text as records: `headers TAB key TAB value`, as Kafka's console producer reads them.

Everything is bytes: what is not UTF-8 goes through unharmed. Pure: lines in, records out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple, Protocol

LINE_BYTES_MAX = 256 * 1024 * 1024
QUOTED_BYTES_MAX = 200

Headers = list[tuple[str, bytes | None]]


class Line(NamedTuple):
    """What one line says."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None  # None: by the key
    timestamp: int | None = None  # None: now


class LineError(Exception):
    """A line or a reader's property that makes no sense, in Kafka's words."""


class RecordReader(Protocol):
    """What turns lines into records; raises LineError."""

    def parse(self, line: bytes, number: int) -> Line: ...


class LineReader:
    """Reads lines under the properties of Kafka's LineMessageReader."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.parse_key = _is_true(properties, "parse.key")
        self.parse_headers = _is_true(properties, "parse.headers")
        self.ignore_error = _is_true(properties, "ignore.error")
        self.key_separator = _bytes(properties, "key.separator", "\t")
        self.headers_delimiter = _bytes(properties, "headers.delimiter", "\t")
        self.headers_separator = _bytes(properties, "headers.separator", ",")
        self.headers_key_separator = _bytes(properties, "headers.key.separator", ":")
        marker = properties.get("null.marker")
        self.null_marker = None if marker is None else marker.encode("utf-8", "surrogateescape")
        self._check()

    def parse(self, line: bytes, number: int) -> Line:
        """The record that line `number` stands for."""
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
        """The part before the separator and the place after it; without one the part is missing, if that is allowed."""
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


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _bytes(properties: Mapping[str, str], name: str, default: str) -> bytes:
    return properties.get(name, default).encode("utf-8", "surrogateescape")


def _quoted(line: bytes) -> str:
    text = line[:QUOTED_BYTES_MAX].decode("utf-8", "backslashreplace")
    return text + "..." if len(line) > QUOTED_BYTES_MAX else text
