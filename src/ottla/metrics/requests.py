"""What requests of one API cost, as the dispatcher counts them. Compiled with mypyc where possible.

A request's life, with Kafka's names: it waits until its connection has its turn (RequestQueueTimeMs), the handler works
(LocalTimeMs), a parked one waits for records or replicas (RemoteTimeMs); all of that is TotalTimeMs. Then the answer
waits for its connection (ResponseQueueTimeMs) and is sent (ResponseSendTimeMs).

Every request is counted. Times are taken of a sample, as Kafka's percentiles are made from one, too: of all parked
requests, of all of the first ones, then of one of eight, which stands for eight; the sending of one of sixty-four.
"""

from __future__ import annotations

import time
from typing import Final

from ottla.metrics.histogram import SIZES, TIMES_NS, Histogram

SAMPLE_EVERY: Final = 8  # powers of two
PROBE_EVERY: Final = 64
ALL_BEFORE: Final = 128  # so many first requests are all looked at: rare APIs show, too


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
        self.remote_ns = Histogram(TIMES_NS)  # of the parked ones; all others waited for nobody
        self.response_queue_ns = Histogram(TIMES_NS)
        self.response_send_ns = Histogram(TIMES_NS)
        self.sizes = Histogram(SIZES)

    def count_request(self, version: int) -> None:
        self.count += 1
        self.versions[version] += 1

    def sample(self, size_bytes: int, received_ns: int, started_ns: int, ended_ns: int) -> None:
        """The handler has returned, with an answer or with the request parked."""
        self.local_ns.add(ended_ns - started_ns)
        self.queue_ns.add(started_ns - received_ns)
        self.sizes.add(size_bytes)

    def answered(self, received_ns: int, now_ns: int, weight: int = 1) -> None:
        """The answer is ready and no one had to be waited for."""
        self.total_ns.add(now_ns - received_ns, weight)

    def answered_later(self, received_ns: int, parked_ns: int, now_ns: int) -> None:
        self.parked_count += 1
        self.remote_ns.add(now_ns - parked_ns)
        self.total_ns.add(now_ns - received_ns)

    @property
    def weight(self) -> int:
        """How many requests the next one of the sample stands for."""
        return 1 if self.count < ALL_BEFORE else SAMPLE_EVERY

    @property
    def wants_sample(self) -> bool:
        return self.count & (SAMPLE_EVERY - 1) == 0 or self.count < ALL_BEFORE

    @property
    def wants_probe(self) -> bool:
        return self.count & (PROBE_EVERY - 1) == 0 or self.count < ALL_BEFORE

    def __repr__(self) -> str:
        return f"<RequestMeter {self.request}: {self.count}, {self.parked_count} of them parked>"


class SendProbe:
    """Follows one answer through its connection, which calls it when sending begins and ends."""

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
