"""Documents as JSON: what decoders make of bytes, written so that no number changes and nothing is left out."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID


def dump(document: Any) -> str:
    """JSON on one line; numbers as exact as they came. Raises RecursionError for what is nested too deep."""
    if isinstance(document, dict):
        pairs = (f"{json.dumps(str(name), ensure_ascii=False)}: {dump(item)}" for name, item in document.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(document, (list, tuple)):
        return f"[{', '.join(map(dump, document))}]"
    if isinstance(document, Decimal):
        return str(document) if document.is_finite() else json.dumps(float(document))
    return json.dumps(document, ensure_ascii=False)


def plain(value: Any) -> Any:
    """What a schema's decoder gives, in the types that JSON knows; bytes become base64, times ISO 8601."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, UUID) else value


def whole_characters(text: str) -> str:
    """The text as UTF-8 can write it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not _is_whole(text) else text


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def for_scripts(document: Any) -> Any:
    """The document with numbers that JavaScript would change written as text, as `dump` writes them; half of a pair of
    surrogates (`"\\ud800"`), which JSON allows and UTF-8 does not, as U+FFFD.
    """
    if isinstance(document, dict):
        return {for_scripts(name): for_scripts(item) for name, item in document.items()}
    if isinstance(document, str):
        return whole_characters(document)
    if isinstance(document, (list, tuple)):
        return [for_scripts(item) for item in document]
    if isinstance(document, Decimal):
        number = float(document) if document.is_finite() else math.inf
        if abs(number) < 2**53 and document == document.to_integral_value():
            return int(document)
        return number if math.isfinite(number) and Decimal(repr(number)) == document else str(document)
    return document if not isinstance(document, float) or math.isfinite(document) else str(document)
