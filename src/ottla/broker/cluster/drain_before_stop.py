"""The last moments of a broker that stops: whoever asks hears who leads now.

Clients whose connection ends before they know better knock at the closed door in ever longer intervals (librdkafka: up
to ten seconds), and go on with that when the broker is back and leads again. So a broker that has handed its leaders
over answers for a little longer, until nobody asks any more.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.metrics.counters import BrokerCounters

QUIET_SECONDS: Final = 0.1
SECONDS_MAX: Final = 0.5


async def drain_before_stop(counters: BrokerCounters) -> None:
    """Serve until no request has come for a moment."""
    asked = -1
    for _ in range(round(SECONDS_MAX / QUIET_SECONDS)):
        before, asked = asked, sum(meter.count for meter in counters.requests.values())
        if asked == before:
            return
        await asyncio.sleep(QUIET_SECONDS)
