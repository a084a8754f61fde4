"""Limits of the connection rate by address (`connection_creation_rate`). Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.quotas.meter import Meter
from ottla.quotas.meter_registry import IDLE_MS, QuotaMeter, Windows
from ottla.quotas.rules import Rule, Rules

ADDRESSES_MAX: Final = 20_000


class ConnectionRates:
    """One meter for each address with a rule and recent connections."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._windows = Windows()
        self._meters: dict[str, QuotaMeter | None] = {}  # None: no rule; valid until the rules change
        self.rejected_count = 0

    def __len__(self) -> int:
        return sum(share is not None for share in self._meters.values())

    def __iter__(self) -> Iterator[tuple[str, QuotaMeter]]:
        return iter([(host, share) for host, share in self._meters.items() if share is not None])

    def change_windows(self, windows: Windows) -> None:
        if windows != self._windows:
            self._windows = windows
            self._meters.clear()

    def forget_rules(self) -> None:
        """Discard the cached rules after a change; opened connections stay counted."""
        for host, share in list(self._meters.items()):
            rule = self._rules.of_address(host)
            if share is None or rule is None:
                del self._meters[host]
            elif share.rule != rule:
                share.rule = rule
                share.meter.change(rule.bound, self._windows.num, self._windows.ms)

    def wait_ms(self, host: str, now_ms: int) -> int:
        """Return the wait before one more connection of an address, at most a window; 0 if it is allowed now."""
        share = self._meters.get(host)
        if share is None:
            if host in self._meters:
                return 0
            share = self._resolve(host)
            if share is None:
                return 0
        wait_ms = share.meter.throttle_time_ms(now_ms)
        if wait_ms == 0:
            share.meter.record(1, now_ms)
            return 0
        wait_ms = max(1, min(wait_ms, self._windows.ms))
        share.meter.record_throttle(wait_ms, now_ms)
        self.rejected_count += 1
        return wait_ms

    def _resolve(self, host: str) -> QuotaMeter | None:
        rule: Rule | None = self._rules.of_address(host)
        if len(self._meters) >= ADDRESSES_MAX:
            del self._meters[next(iter(self._meters))]
        made = QuotaMeter(rule, Meter(rule.bound, self._windows.num, self._windows.ms)) if rule is not None else None
        self._meters[host] = made
        return made

    def meter_of(self, host: str) -> QuotaMeter | None:
        return self._meters.get(host)

    def forget_idle(self, now_ms: int) -> None:
        for host, share in list(self._meters.items()):
            if share is None or now_ms - share.meter.last_ms >= IDLE_MS:
                del self._meters[host]

    def __repr__(self) -> str:
        return f"<ConnectionRates {len(self._meters)} addresses>"
