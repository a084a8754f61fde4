"""Limits of connections and of the connection rate, for a broker and its listeners. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.network.socket_options import NO_OPTIONS, SocketOptions

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The limits of one listener."""

    connections_max: int = UNLIMITED
    creation_rate: int = UNLIMITED  # new connections per second


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one broker, over all its listeners."""

    frame_bytes_max: int = 104_857_600
    connections_max: int = UNLIMITED
    connections_per_host_max: int = UNLIMITED
    connections_by_host: Mapping[str, int] = field(default_factory=dict)  # limits of single hosts
    creation_rate: int = UNLIMITED
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    backlog: int = 50
    link: SocketOptions = NO_OPTIONS

    def per_host(self, host: str) -> int:
        return self.connections_by_host.get(host, self.connections_per_host_max)

    def of_listener(self, name: str) -> ListenerLimits:
        return self.by_listener.get(name, _NO_LIMITS)


class RateLimit:
    """A token bucket for `rate` events per second, with a burst of one second."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._tokens = float(rate)
        self._counted_at = now

    def seconds_to_wait(self, now: float) -> float:
        """Return the wait before the next event; 0.0: it may happen now."""
        if self.rate >= UNLIMITED:
            return 0.0
        self._tokens = min(float(self.rate), self._tokens + (now - self._counted_at) * self.rate)
        self._counted_at = now
        return 0.0 if self._tokens >= 1.0 else (1.0 - self._tokens) / max(1, self.rate)

    def consume(self) -> None:
        """Count an event."""
        self._tokens -= 1.0

    def update_rate(self, rate: int, now: float) -> None:
        """Change the rate; tokens above a lower rate are dropped."""
        self.seconds_to_wait(now)
        is_first = self.rate >= UNLIMITED
        self.rate = rate
        self._tokens = float(rate) if is_first else min(self._tokens, float(rate))
        self._counted_at = now

    def __repr__(self) -> str:
        return f"<RateLimit {self.rate}/s, {self._tokens:.1f} saved>"


_NO_LIMITS: Final = ListenerLimits()
