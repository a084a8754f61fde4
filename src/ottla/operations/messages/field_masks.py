"""Masks confidential fields before a message is searched, shown or exported.

    orders:value.card.number    one field of one topic
    *:value.**.password         a field of that name at any depth, in every topic
    audit-*:header.token        a header; `key` and `value` mask all of it

Rules:
1. A message is masked before it is searched, so that a search cannot reveal masked values.
2. Fail closed: if a rule masks a field and the bytes are not a document with fields, the whole key or value is masked.
3. `*` in a path matches one name, `**` any number of names; arrays are traversed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.operations.errors import WrongInputError
from ottla.operations.messages.expressions.parser import ExpressionError, parse
from ottla.operations.messages.expressions.syntax import HEADER, KEY, VALUE, Compare, Field
from ottla.operations.messages.json_documents import dump
from ottla.operations.messages.message_decoder import NULL, Decoded, Decoder
from ottla.operations.messages.record_reader import Record
from ottla.operations.schema_registry.framing import KEY_HEADER, VALUE_HEADER

HIDDEN = "***"
ANY, ANY_DEPTH = "*", "**"
RULES_MAX = 1000

SCHEMA_HEADERS = {KEY: KEY_HEADER, VALUE: VALUE_HEADER}


class MaskError(WrongInputError):
    """An invalid rule; str() is a sentence."""


class MaskRule(NamedTuple):
    """Masks `field` in topics whose name matches `topics`, a pattern with * and ?."""

    topics: str
    field: Field

    def __str__(self) -> str:
        return f"{self.topics}:{self.field}"


def parse_rule(text: str) -> MaskRule:
    """Parse `topics:field`. Raises MaskError."""
    topics, colon, name = text.strip().rpartition(":")
    try:
        found = parse(f"{name} = x") if colon and topics else None
    except ExpressionError:
        found = None
    if not isinstance(found, Compare) or found.field.part not in (KEY, VALUE, HEADER):
        raise MaskError(f"{text!r} masks nothing: write topic:value.some.field, topic:key or topic:header.name")
    return MaskRule(topics, found.field)


class Masks:
    """The rules that apply to one topic."""

    def __init__(self, rules: Iterable[MaskRule], topic: str) -> None:
        fields = [rule.field for rule in rules if fnmatch.fnmatchcase(topic, rule.topics)]
        self._headers = {field.path[0].lower() for field in fields if field.part == HEADER}
        self._paths = {part: [field.path for field in fields if field.part == part] for part in (KEY, VALUE)}
        self.is_empty = not fields

    def apply(self, record: Record, decoder: Decoder) -> Record:
        """Mask the record: masked parts become JSON, all other parts keep their bytes."""
        if self.is_empty:
            return record
        headers = [
            (name, HIDDEN.encode() if value is not None and self._hides_header(name) else value)
            for name, value in record.headers
        ]
        key, value = record.key, record.value
        if self._paths[KEY] or self._paths[VALUE]:
            decoded_key, decoded_value = decoder.decode(key, value, record.headers)
            key = _masked(key, decoded_key, self._paths[KEY])
            value = _masked(value, decoded_value, self._paths[VALUE])
            # Masked parts are JSON now, so headers that name a schema no longer apply.
            replaced = {name for part, name in SCHEMA_HEADERS.items() if self._paths[part]}
            headers = [(name, content) for name, content in headers if name not in replaced]
        return record._replace(key=key, value=value, headers=headers)

    def _hides_header(self, name: str) -> bool:
        return ANY in self._headers or name.lower() in self._headers

    def __repr__(self) -> str:
        return f"<Masks {self._paths} headers={sorted(self._headers)}>"


def _masked(data: bytes | None, decoded: Decoded, paths: Sequence[tuple[str, ...]]) -> bytes | None:
    if data is None or decoded.format == NULL or not paths:
        return data
    whole = f'"{HIDDEN}"'.encode()
    if () in paths or not isinstance(decoded.document, (dict, list)):
        return whole
    try:
        document = decoded.document
        for path in paths:
            document = _mask_path(document, path)
        return dump(document).encode("utf-8", "surrogatepass")
    except RecursionError:
        return whole


def _mask_path(document: Any, path: Sequence[str]) -> Any:
    """A copy with every value at this path masked."""
    if not path:
        return HIDDEN
    if isinstance(document, list):
        return [_mask_item(index, item, path) for index, item in enumerate(document)]
    if not isinstance(document, dict):
        return document
    step, rest = path[0], path[1:]
    if step == ANY_DEPTH:
        if not rest:
            return HIDDEN
        deeper = {name: _mask_path(item, path) for name, item in document.items()}
        return _mask_path(deeper, rest)
    return {name: _mask_path(item, rest) if step in (ANY, name) else item for name, item in document.items()}


def _mask_item(index: int, item: Any, path: Sequence[str]) -> Any:
    if path[0] in (ANY, str(index)):
        item = _mask_path(item, path[1:])
    return _mask_path(item, path) if isinstance(item, (dict, list)) else item
