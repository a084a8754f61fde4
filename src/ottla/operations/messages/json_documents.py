"""Decoded documents as JSON, without loss of precision or content."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID


def dump(document: Any) -> str:
    """JSON on one line with exact numbers. Raises RecursionError if the nesting is too deep."""
    if isinstance(document, dict):
        pairs = (f"{json.dumps(str(name), ensure_ascii=False)}: {dump(item)}" for name, item in document.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(document, (list, tuple)):
        return f"[{', '.join(map(dump, document))}]"
    if isinstance(document, Decimal):
        return str(document) if document.is_finite() else json.dumps(float(document))
    return json.dumps(document, ensure_ascii=False)


def to_json_types(value: Any) -> Any:
    """Convert a decoder's value to JSON types; bytes become base64, times ISO 8601."""
    if isinstance(value, dict):
        return {str(name): to_json_types(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_types(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, UUID) else value


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not _is_encodable(text) else text


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def for_javascript(document: Any) -> Any:
    """The document for JavaScript: numbers that it would round become strings, as `dump` writes them; lone surrogates
    (`"\\ud800"`), which JSON allows and UTF-8 does not, become U+FFFD.
    """
    if isinstance(document, dict):
        return {for_javascript(name): for_javascript(item) for name, item in document.items()}
    if isinstance(document, str):
        return replace_lone_surrogates(document)
    if isinstance(document, (list, tuple)):
        return [for_javascript(item) for item in document]
    if isinstance(document, Decimal):
        number = float(document) if document.is_finite() else math.inf
        if abs(number) < 2**53 and document == document.to_integral_value():
            return int(document)
        return number if math.isfinite(number) and Decimal(repr(number)) == document else str(document)
    return document if not isinstance(document, float) or math.isfinite(document) else str(document)
