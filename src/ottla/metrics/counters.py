"""What one broker counts while it works: requests, errors, compaction, the audit trail, clients of other versions.

The hot path holds the objects themselves (its RequestMeter, its TopicTraffic); nothing is looked up by name there.
"""

from __future__ import annotations

from ottla.metrics.audit import AuditCounters
from ottla.metrics.cleaner import CleanerCounters
from ottla.metrics.error_codes import error_codes
from ottla.metrics.requests import RequestMeter
from ottla.metrics.unsupported_requests import UnsupportedRequests


class BrokerCounters:
    """Sums since the broker started."""

    def __init__(self) -> None:
        self.requests: dict[int, RequestMeter] = {}  # by API key
        self.errors: dict[tuple[int, int], int] = {}  # by API key and error code; success is not in it
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
        """The same for as many at once."""
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + count

    def note_answer(self, api_key: int, response: object) -> None:
        """Count every error code of an answer, success too; Produce and Fetch count their own."""
        for code in error_codes(response):
            self.note_error(api_key, code)

    def __repr__(self) -> str:
        return f"<BrokerCounters {sum(meter.count for meter in self.requests.values())} requests>"
