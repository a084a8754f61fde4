"""Waiting for a change to be seen: Apache Kafka answers when its controller has a change, and brokers tell it later.

For the thread in which a cluster is changed; what the page asks for next shows the change then.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.console.clusters.cluster import SEEN_SECONDS_MAX

PAUSE_S = 0.05


def wait_until(is_seen: Callable[[], bool]) -> None:
    """Returns when it is, or after a while in which it should have been: the page asks again anyway."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while not is_seen() and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
