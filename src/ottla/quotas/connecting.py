"""How fast each address may open connections (`connection_creation_rate`). Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.quotas.meter import Meter
from ottla.quotas.rules import Rule, Rules
from ottla.quotas.shares import IDLE_MS, Share, Windows

ADDRESSES_MAX: Final = 20_000


class ConnectionRates:
    """A meter for each address that has a rule and has connected lately."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._windows = Windows()
        self._shares: dict[str, Share | None] = {}  # None: no rule, as long as the rules are the same
        self.refused = 0

    def __len__(self) -> int:
        return sum(share is not None for share in self._shares.values())

    def __iter__(self) -> Iterator[tuple[str, Share]]:
        return iter([(host, share) for host, share in self._shares.items() if share is not None])

    def change_windows(self, windows: Windows) -> None:
        if windows != self._windows:
            self._windows = windows
            self._shares.clear()

    def forget_rules(self) -> None:
        """Another rule counts at once; what was opened stays counted."""
        for host, share in list(self._shares.items()):
            rule = self._rules.of_address(host)
            if share is None or rule is None:
                del self._shares[host]
            elif share.rule != rule:
                share.rule = rule
                share.meter.change(rule.bound, self._windows.num, self._windows.ms)

    def wait_ms(self, host: str, now_ms: int) -> int:
        """One more connection wants to come: 0 if it may, else how long its address has to wait; at most a window."""
        share = self._shares.get(host)
        if share is None:
            if host in self._shares:
                return 0
            share = self._resolve(host)
            if share is None:
                return 0
        wait_ms = share.meter.wait_ms(now_ms)
        if wait_ms == 0:
            share.meter.note(1, now_ms)
            return 0
        wait_ms = max(1, min(wait_ms, self._windows.ms))
        share.meter.note_held(wait_ms, now_ms)
        self.refused += 1
        return wait_ms

    def _resolve(self, host: str) -> Share | None:
        rule: Rule | None = self._rules.of_address(host)
        if len(self._shares) >= ADDRESSES_MAX:
            del self._shares[next(iter(self._shares))]
        made = Share(rule, Meter(rule.bound, self._windows.num, self._windows.ms)) if rule is not None else None
        self._shares[host] = made
        return made

    def share_of(self, host: str) -> Share | None:
        return self._shares.get(host)

    def forget_idle(self, now_ms: int) -> None:
        for host, share in list(self._shares.items()):
            if share is None or now_ms - share.meter.last_ms >= IDLE_MS:
                del self._shares[host]

    def __repr__(self) -> str:
        return f"<ConnectionRates {len(self._shares)} addresses>"
