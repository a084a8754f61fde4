"""A message for display and search: masked, lazily decoded, as text or hex, truncated if too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.operations.messages.expressions.evaluator import NO_DOCUMENT, Headers, read_json
from ottla.operations.messages.expressions.syntax import KEY
from ottla.operations.messages.field_masks import Masks
from ottla.operations.messages.json_documents import dump, for_javascript, replace_lone_surrogates
from ottla.operations.messages.message_decoder import BINARY, NULL, Decoded, Decoder
from ottla.operations.messages.record_reader import MARKERS, Record, RecordChunk

SHOWN_BYTES = 64 << 10  # of a key or value in a list; a single message is shown whole


class Message:
    """A masked message, for searches, pages, tools and files."""

    __slots__ = ("_decoded", "decoder", "is_masked", "record", "sizes")

    def __init__(self, record: Record, decoder: Decoder, masks: Masks) -> None:
        self.sizes = (_size(record.key), _size(record.value))
        masked = masks.apply(record, decoder)
        self.is_masked = masked is not record and masked != record
        self.record = masked
        self.decoder = decoder
        self._decoded: tuple[Decoded, Decoded] | None = None

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp_ms(self) -> int:
        return self.record.timestamp_ms

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def value(self) -> bytes | None:
        return self.record.value

    @property
    def headers(self) -> Headers:
        return self.record.headers

    @property
    def decoded(self) -> tuple[Decoded, Decoded]:
        """Decoded key and value. Masked parts are JSON."""
        if self._decoded is None:
            self._decoded = self.decoder.decode(self.record.key, self.record.value, self.record.headers)
        return self._decoded

    def raw_bytes(self) -> bytes | None:
        return None

    def document(self, part: str) -> Any:
        return self.decoded[0 if part == KEY else 1].document

    def document_texts(self) -> Sequence[bytes]:
        if self.decoder.uses_raw_json:
            return ()
        return document_texts(self.decoded)

    def to_json(self, shown_bytes: int = SHOWN_BYTES) -> dict[str, Any]:
        """The message as JSON for the console."""
        record = self.record
        key, value = self.decoded if record.state not in MARKERS else (Decoded(BINARY), Decoded(BINARY))
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": "LogAppendTime" if record.is_log_append_time else "CreateTime",
            "state": record.state.value,
            "codec": record.codec,
            "is_masked": self.is_masked,
            "key": _field_json(record.key, key, self.sizes[0], shown_bytes),
            "value": _field_json(record.value, value, self.sizes[1], shown_bytes),
            "headers": [
                {
                    "name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                    "value": None if content is None else _text(content, shown_bytes),
                    "bytes": _size(content),
                }
                for name, content in record.headers
            ],
        }

    def __repr__(self) -> str:
        return f"<Message {self.record.partition}@{self.record.offset} {self.record.state}>"


class SearchRow:
    """One row of a piece, as a search sees it. The object is reused for all rows, because most do not match."""

    __slots__ = ("_decoded", "_decoded_row", "decoder", "piece", "row")

    def __init__(self, piece: RecordChunk, decoder: Decoder) -> None:
        self.piece = piece
        self.decoder = decoder
        self.row = 0
        self._decoded: tuple[Decoded, Decoded] | None = None
        self._decoded_row = -1

    @property
    def partition(self) -> int:
        return self.piece.partition

    @property
    def offset(self) -> int:
        return self.piece.offsets[self.row]

    @property
    def timestamp_ms(self) -> int:
        return self.piece.timestamp_ms(self.row)

    @property
    def key(self) -> bytes | None:
        return self.piece.key(self.row)

    @property
    def value(self) -> bytes | None:
        return self.piece.value(self.row)

    @property
    def headers(self) -> Headers:
        return self.piece.headers(self.row)

    def raw_bytes(self) -> bytes | None:
        return self.piece.row_bytes(self.row) if self.decoder.uses_raw_json else None

    def document(self, part: str) -> Any:
        if self.decoder.uses_raw_json:  # the other part need not be decoded
            return decode_json(self.key if part == KEY else self.value)
        return self._decoded_pair()[0 if part == KEY else 1].document

    def document_texts(self) -> Sequence[bytes]:
        return () if self.decoder.uses_raw_json else document_texts(self._decoded_pair())

    def _decoded_pair(self) -> tuple[Decoded, Decoded]:
        if self._decoded is None or self._decoded_row != self.row:
            self._decoded = self.decoder.decode(
                self.key, self.value, () if self.decoder.schemas is None else self.headers
            )
            self._decoded_row = self.row
        return self._decoded

    def __repr__(self) -> str:
        return f"<SearchRow {self.row} of {self.piece}>"


def document_texts(both: tuple[Decoded, Decoded]) -> Sequence[bytes]:
    """The documents of key and value as text; nothing if they are the bytes themselves."""
    return [
        dump_or_nothing(decoded.document).encode("utf-8", "surrogatepass")
        for decoded in both
        if decoded.document is not NO_DOCUMENT and not decoded.are_bytes_searchable
    ]


def decode_json(data: bytes | None) -> Any:
    return NO_DOCUMENT if data is None else read_json(data)


def dump_or_nothing(document: Any) -> str:
    """The document as text; "" if it is nested too deep."""
    try:
        return dump(document)
    except RecursionError:
        return ""


def _field_json(data: bytes | None, decoded: Decoded, size: int | None, shown_bytes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"format": decoded.format, "bytes": size}
    if decoded.schema_id is not None:
        found["schema_id"] = decoded.schema_id
    if decoded.problem is not None:
        found["problem"] = decoded.problem
    if data is None or decoded.format == NULL:
        return found
    found["is_cut"] = len(data) > shown_bytes
    if decoded.document is not NO_DOCUMENT and not found["is_cut"]:
        try:
            found["json"] = for_javascript(decoded.document)
            found["text"] = (
                replace_lone_surrogates(dump(decoded.document))
                if not decoded.are_bytes_searchable
                else _text(data, shown_bytes)
            )
        except RecursionError:
            found["problem"] = "nested too deep to be shown as a tree"
            found["text"] = _text(data, shown_bytes)
    elif decoded.format == BINARY:
        found["hex"] = data[:shown_bytes].hex()
    else:
        found["text"] = _text(data, shown_bytes)
    return found


def _text(data: bytes, shown_bytes: int) -> str:
    return data[:shown_bytes].decode("utf-8", "replace")


def _size(data: bytes | None) -> int | None:
    return None if data is None else len(data)
