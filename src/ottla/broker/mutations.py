"""Changes of topics under a quota (KIP-599): partitions that are made or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.context import Context
from ottla.quotas.shares import Share

if TYPE_CHECKING:
    from ottla.broker.quota_gate import QuotaGate

QUOTA_EXCEEDED: Final = "The throttling quota has been exceeded."


class Mutations:
    """The changes of one request.

    Newer versions are refused what is beyond the quota; older ones do not know that error, and are only held up.
    """

    def __init__(self, gate: QuotaGate, context: Context, share: Share, is_strict: bool) -> None:
        self._gate = gate
        self._context = context
        self._share = share
        self._is_strict = is_strict and not gate.is_observing

    def accepts(self, partitions: int) -> bool:
        """Count one more change, or refuse it: THROTTLING_QUOTA_EXCEEDED."""
        meter, now_ms = self._share.meter, self._gate.now_ms()
        wait_ms = meter.wait_ms(now_ms)
        is_refused = self._is_strict and wait_ms > 0
        if not is_refused:
            wait_ms = meter.note(partitions, now_ms)
        if wait_ms > 0:
            self._gate.hold(self._context, self._share, wait_ms)
        return not is_refused
