"""Messages as lines of files: one JSON object per line, or CSV that is safe to open in a spreadsheet.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000, "key": "k", "value": "v", "headers": []}

The JSON is that of `ottla consume --json`, so `ottla produce --format json` can write it to a topic again. Bytes that
are not text are {"base64": "…"}. A value decoded with a schema is exported as the text of its document.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from ottla.operations.messages.expressions.evaluator import NO_DOCUMENT
from ottla.operations.messages.message import Message, dump_or_nothing
from ottla.operations.messages.message_decoder import Decoded
from ottla.operations.records.formats import text_value

CSV_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
# prefixes of formulas, also after characters that spreadsheets trim
DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0")
YEAR_MS_MAX = 253402300800000


def json_line(topic: str, message: Message) -> str:
    """One object, without a line end."""
    key, value = decoded_bytes(message)
    fields = {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": None if message.timestamp_ms < 0 else message.timestamp_ms,
        "key": _text_or_base64(key),
        "value": _text_or_base64(value),
        "headers": [
            [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), _text_or_base64(content)]
            for name, content in message.headers
        ],
    }
    return json.dumps(fields)


def csv_header() -> str:
    return _csv(CSV_COLUMNS)


def csv_line(message: Message) -> str:
    """One line, with its end."""
    key, value = decoded_bytes(message)
    headers = json.dumps([[name, _text_or_base64(content)] for name, content in message.headers], ensure_ascii=False)
    cells = (
        escape_formula(_csv_text(key)),
        escape_formula(_csv_text(value)),
        "" if not message.headers else escape_formula(headers),
    )
    return _csv((str(message.partition), str(message.offset), time_text(message.timestamp_ms), *cells))


def escape_formula(cell: str) -> str:
    """Quote a cell that a spreadsheet would evaluate (CSV injection)."""
    return f"'{cell}" if cell.startswith(DANGEROUS) else cell


def time_text(timestamp_ms: int) -> str:
    """ISO 8601 in UTC; "" without a timestamp, the number if it is outside the calendar."""
    if timestamp_ms < 0:
        return ""
    if timestamp_ms >= YEAR_MS_MAX:
        return str(timestamp_ms)
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def decoded_bytes(message: Message) -> tuple[bytes | None, bytes | None]:
    """Key and value; if a schema or an internal decoder was used, the document as text."""
    if message.decoder.uses_raw_json:
        return message.key, message.value
    key, value = message.decoded
    return _document_or(key, message.key), _document_or(value, message.value)


def _document_or(decoded: Decoded, data: bytes | None) -> bytes | None:
    if data is None or decoded.document is NO_DOCUMENT or decoded.are_bytes_searchable:
        return data
    return dump_or_nothing(decoded.document).encode("utf-8", "replace") or data


def _text_or_base64(data: bytes | None) -> Any:
    return None if data is None else text_value(data)


def _csv_text(data: bytes | None) -> str:
    found = _text_or_base64(data)
    return "" if found is None else found if isinstance(found, str) else f"base64:{found['base64']}"


def _csv(cells: tuple[str, ...]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()
