"""Request metrics of one API, as the dispatcher counts them. Compiled with mypyc where possible.

The phases of a request have Kafka's names. It waits for its connection's turn (RequestQueueTimeMs), the handler runs
(LocalTimeMs), and a delayed request waits for records or replicas (RemoteTimeMs); the sum is TotalTimeMs. Then the
response waits for its connection (ResponseQueueTimeMs) and is sent (ResponseSendTimeMs).

Every request is counted. Times are sampled, as for Kafka's percentiles: all delayed requests, all of the first ones,
then one of eight with a weight of eight; the sending of one of sixty-four.
"""

from __future__ import annotations

import time
from typing import Final

from ottla.metrics.histogram import SIZES, TIMES_NS, Histogram

SAMPLE_EVERY: Final = 8  # powers of two
PROBE_EVERY: Final = 64
WARMUP_REQUESTS: Final = 128  # the first requests are all measured, so that rare APIs also have times


class RequestMeter:
    """Counts and times of one API."""

    def __init__(self, request: str, max_version: int) -> None:
        self.request = request
        self.count = 0
        self.parked_count = 0
        self.versions = [0] * (max_version + 1)
        self.total_ns = Histogram(TIMES_NS)
        self.local_ns = Histogram(TIMES_NS)
        self.queue_ns = Histogram(TIMES_NS)
        self.remote_ns = Histogram(TIMES_NS)  # of delayed requests; 0 for all others
        self.response_queue_ns = Histogram(TIMES_NS)
        self.response_send_ns = Histogram(TIMES_NS)
        self.sizes = Histogram(SIZES)

    def count_request(self, version: int) -> None:
        self.count += 1
        self.versions[version] += 1

    def sample(self, size_bytes: int, received_ns: int, started_ns: int, ended_ns: int) -> None:
        """Record a sample when the handler has returned: the request is complete or delayed."""
        self.local_ns.add(ended_ns - started_ns)
        self.queue_ns.add(started_ns - received_ns)
        self.sizes.add(size_bytes)

    def record(self, received_ns: int, now_ns: int, weight: int = 1) -> None:
        """Record the times of a request that was not delayed, when its response is ready."""
        self.total_ns.add(now_ns - received_ns, weight)

    def record_deferred(self, received_ns: int, parked_ns: int, now_ns: int) -> None:
        self.parked_count += 1
        self.remote_ns.add(now_ns - parked_ns)
        self.total_ns.add(now_ns - received_ns)

    @property
    def weight(self) -> int:
        """Return the number of requests that the next sample represents."""
        return 1 if self.count < WARMUP_REQUESTS else SAMPLE_EVERY

    @property
    def wants_sample(self) -> bool:
        return self.count & (SAMPLE_EVERY - 1) == 0 or self.count < WARMUP_REQUESTS

    @property
    def wants_probe(self) -> bool:
        return self.count & (PROBE_EVERY - 1) == 0 or self.count < WARMUP_REQUESTS

    def __repr__(self) -> str:
        return f"<RequestMeter {self.request}: {self.count}, {self.parked_count} of them parked>"


class SendProbe:
    """Measures the sending of one response; the connection calls it at the start and at the end."""

    def __init__(self, meter: RequestMeter, ready_ns: int) -> None:
        self._meter = meter
        self._ready_ns = ready_ns
        self._sending_ns = 0

    def on_sending(self) -> None:
        if self._sending_ns == 0:
            self._sending_ns = time.monotonic_ns()
            self._meter.response_queue_ns.add(self._sending_ns - self._ready_ns)

    def on_sent(self) -> None:
        self._meter.response_send_ns.add(time.monotonic_ns() - self._sending_ns)

    def __repr__(self) -> str:
        return f"<SendProbe {self._meter.request}>"
