"""The statistics of librdkafka under the metric names of the Java client, for `--print-metrics`.

librdkafka reports its statistics as JSON at an interval.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

INTERVAL_MS = 250
SECONDS_MAX = 2.0
WAIT_SECONDS = 0.05


class LibraryMetrics:
    """The latest statistics of one client; `settings` enable them in the client's configuration."""

    def __init__(self, group: str, client_id: str) -> None:
        self.group = group  # producer or consumer
        self.client_id = client_id
        self.newest: dict[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._take}

    def wait(self, poll: Callable[[float], object]) -> None:
        """Poll the client until statistics from after this call arrive."""
        self.newest = {}
        deadline = time.monotonic() + SECONDS_MAX
        while not self.newest and time.monotonic() < deadline:
            poll(WAIT_SECONDS)

    def lines(self) -> list[str]:
        return table(named_values(self.newest, self.group, self.client_id))

    def _take(self, text: str) -> None:
        self.newest = json.loads(text)

    def __repr__(self) -> str:
        return f"<LibraryMetrics {self.group} {len(self.newest)} numbers>"


def named_values(numbers: Mapping[str, Any], group: str, client_id: str) -> dict[str, float]:
    """Java's metric names with the values of librdkafka."""
    brokers = [broker for broker in numbers.get("brokers", {}).values() if broker.get("source") != "internal"]
    values = {
        "connection-count": float(sum(broker.get("state") == "UP" for broker in brokers)),
        "incoming-byte-total": float(numbers.get("rx_bytes", 0)),
        "outgoing-byte-total": float(numbers.get("tx_bytes", 0)),
        "request-total": float(numbers.get("tx", 0)),
        "response-total": float(numbers.get("rx", 0)),
        "request-latency-avg": _average([broker.get("rtt", {}) for broker in brokers]),
        "request-latency-max": max((broker.get("rtt", {}).get("max", 0) for broker in brokers), default=0) / 1000,
    }
    tags = f"{{client-id={client_id}}}"
    found = {f"{group}-metrics:{name}:{tags}": value for name, value in values.items()}
    return found | _records(numbers, group, tags)


def _records(numbers: Mapping[str, Any], group: str, tags: str) -> dict[str, float]:
    if group == "producer":
        batches = [topic.get("batchsize", {}) for topic in numbers.get("topics", {}).values()]
        retries = sum(broker.get("txretries", 0) for broker in numbers.get("brokers", {}).values())
        return {
            f"producer-metrics:record-send-total:{tags}": float(numbers.get("txmsgs", 0)),
            f"producer-metrics:record-retry-total:{tags}": float(retries),
            f"producer-metrics:batch-size-avg:{tags}": _average(batches, 1),
            f"producer-metrics:batch-size-max:{tags}": float(
                max((batch.get("max", 0) for batch in batches), default=0)
            ),
        }
    return {
        f"consumer-fetch-manager-metrics:records-consumed-total:{tags}": float(numbers.get("rxmsgs", 0)),
        f"consumer-fetch-manager-metrics:bytes-consumed-total:{tags}": float(numbers.get("rxmsg_bytes", 0)),
    }


def table(values: Mapping[str, float]) -> list[str]:
    """A blank line, a heading and one line per metric, in Kafka's format."""
    width = max(map(len, values), default=0)
    head = f"{'Metric Name':{width}}   Value"
    return ["", head, *(f"{name:{width}} : {value:.3f}" for name, value in sorted(values.items()))]


def _average(windows: list[dict[str, Any]], unit: int = 1000) -> float:
    count = sum(window.get("cnt", 0) for window in windows)
    return sum(window.get("sum", 0) for window in windows) / count / unit if count else 0.0
