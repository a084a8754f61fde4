"""How many connections a broker puts up with, and how fast new ones may come. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.network.link_options import NO_OPTIONS, LinkOptions

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener puts up with."""

    connections_max: int = UNLIMITED
    creation_rate: int = UNLIMITED  # new connections a second


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one broker puts up with, over all its listeners."""

    frame_bytes_max: int = 104_857_600
    connections_max: int = UNLIMITED
    connections_per_host_max: int = UNLIMITED
    connections_by_host: Mapping[str, int] = field(default_factory=dict)  # other limits for some hosts
    creation_rate: int = UNLIMITED
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    backlog: int = 50
    link: LinkOptions = NO_OPTIONS

    def per_host(self, host: str) -> int:
        return self.connections_by_host.get(host, self.connections_per_host_max)

    def of_listener(self, name: str) -> ListenerLimits:
        return self.by_listener.get(name, _NO_LIMITS)


class RateLimit:
    """Lets `rate` events a second through; a pause saves up at most one second's worth of them."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._saved = float(rate)
        self._counted_at = now

    def seconds_to_wait(self, now: float) -> float:
        """0.0: the next event may happen now."""
        if self.rate >= UNLIMITED:
            return 0.0
        self._saved = min(float(self.rate), self._saved + (now - self._counted_at) * self.rate)
        self._counted_at = now
        return 0.0 if self._saved >= 1.0 else (1.0 - self._saved) / max(1, self.rate)

    def take(self) -> None:
        """An event happened."""
        self._saved -= 1.0

    def change(self, rate: int, now: float) -> None:
        """Another rate from now on; a slower one forgets what was saved up beyond it."""
        self.seconds_to_wait(now)
        is_first = self.rate >= UNLIMITED
        self.rate = rate
        self._saved = float(rate) if is_first else min(self._saved, float(rate))
        self._counted_at = now

    def __repr__(self) -> str:
        return f"<RateLimit {self.rate}/s, {self._saved:.1f} saved>"


_NO_LIMITS: Final = ListenerLimits()
