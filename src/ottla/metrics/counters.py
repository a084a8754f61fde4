"""Counters of one broker: requests, errors, compaction, the audit trail, unsupported requests.

The hot path holds the objects themselves (its RequestMeter, its TopicTraffic), and needs no lookup by name.

Finds the error codes in a response, by its message class. Compiled with mypyc where possible.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ottla.base.names import TopicPartition
from ottla.metrics.requests import RequestMeter
from ottla.metrics.unsupported_requests import UnsupportedRequests
from ottla.protocol.schema import Type, types_of


class AuditCounters:
    """Updated by the trail and its writer, read by the metrics."""

    def __init__(self) -> None:
        self.written = 0
        self.lost = 0  # never written: the queue was full, or the broker stopped
        self.failed_writes = 0  # attempts that were retried
        self.waiting = 0  # queued events

    def __repr__(self) -> str:
        return f"<AuditCounters {self.written} written, {self.waiting} waiting, {self.lost} lost>"


class CleanerCounters:
    """Updated by the cleaner, read by the metrics."""

    def __init__(self) -> None:
        self.runs = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self.seconds = 0.0
        self.last_recopy = 0.0  # of the last run: bytes written per byte read
        self.last_seconds = 0.0
        self.max_dirty_ratio = 0.0  # the highest share of uncompacted bytes at the last check
        self.checked_ms = 0  # time of the last check; 0: never
        self.uncleanable: Collection[TopicPartition] = ()  # logs that are skipped after an error

    def record_check(self, dirtiest: float, now_ms: int) -> None:
        self.max_dirty_ratio = dirtiest
        self.checked_ms = now_ms

    def record_run(
        self, *, bytes_read: int, bytes_written: int, records_read: int, records_kept: int, seconds: float
    ) -> None:
        self.runs += 1
        self.bytes_read += bytes_read
        self.bytes_written += bytes_written
        self.records_read += records_read
        self.records_kept += records_kept
        self.seconds += seconds
        self.last_recopy = bytes_written / bytes_read if bytes_read else 0.0
        self.last_seconds = seconds

    def __repr__(self) -> str:
        return f"<CleanerCounters {self.runs} runs, {self.records_read - self.records_kept} records removed>"


class BrokerCounters:
    """Totals since the broker started."""

    def __init__(self) -> None:
        self.requests: dict[int, RequestMeter] = {}  # by API key
        self.errors: dict[tuple[int, int], int] = {}  # by API key and error code; without success
        self.cleaner = CleanerCounters()
        self.audit = AuditCounters()
        self.unsupported = UnsupportedRequests()

    def meter(self, api_key: int, request: str, max_version: int) -> RequestMeter:
        found = self.requests.get(api_key)
        if found is None:
            found = self.requests[api_key] = RequestMeter(request, max_version)
        return found

    def note_error(self, api_key: int, code: int) -> None:
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1

    def note_errors(self, api_key: int, code: int, count: int) -> None:
        """Count several errors at once."""
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + count

    def note_answer(self, api_key: int, response: object) -> None:
        """Count every error code of a response, including success; Produce and Fetch count their own."""
        for code in error_codes(response):
            self.note_error(api_key, code)

    def __repr__(self) -> str:
        return f"<BrokerCounters {sum(meter.count for meter in self.requests.values())} requests>"


FIELD: Final = "error_code"
CODES_MAX: Final = 1000  # per response: Metadata of ten thousand partitions is not read to its end


class ErrorCodeField:
    """A field whose structs contain error codes."""

    def __init__(self, field: str, is_array: bool, below: ErrorCodeFields) -> None:
        self.field = field
        self.is_array = is_array
        self.below = below

    def __repr__(self) -> str:
        return f"<ErrorCodeField {self.field}>"


class ErrorCodeFields:
    """The error codes in a struct: its own, and those in its fields."""

    def __init__(self, has_code: bool, fields: list[ErrorCodeField]) -> None:
        self.has_code = has_code
        self.fields = fields

    def __repr__(self) -> str:
        return f"<ErrorCodeFields {self.has_code}, {self.fields}>"


_fields_by_class: Final[dict[type, ErrorCodeFields]] = {}


def error_codes(response: object) -> list[int]:
    """Return the error codes of a response, success (0) included; at most CODES_MAX."""
    found: list[int] = []
    _collect(response, _find_error_fields(type(response)), found)
    return found


def _collect(value: Any, places: ErrorCodeFields, found: list[int]) -> None:
    if len(found) >= CODES_MAX:
        return
    if places.has_code:
        found.append(value.error_code)
    for place in places.fields:
        below = getattr(value, place.field)
        if below is None:
            continue
        if not place.is_array:
            _collect(below, place.below, found)
            continue
        for item in below:
            if len(found) >= CODES_MAX:
                return
            _collect(item, place.below, found)


def _find_error_fields(struct: type) -> ErrorCodeFields:
    known = _fields_by_class.get(struct)
    if known is None:
        fields = []
        for name, kind in types_of(struct).items():
            item: Type = kind.array_item if kind.kind == "array" else kind
            if item.kind == "struct":
                below = _find_error_fields(item.struct_class)
                if below.has_code or below.fields:
                    fields.append(ErrorCodeField(name, kind.kind == "array", below))
        known = _fields_by_class[struct] = ErrorCodeFields(FIELD in types_of(struct), fields)
    return known
