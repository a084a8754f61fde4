"""A steady flow of records over many partitions, and its effect on single requests."""

import threading
import time

from bench import wire
from bench.batches import batch_of_bytes
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads import one_in_flight
from bench.procfs import memory
from bench.raw_client import Connection, Target, check_produced

BATCH_BYTES = 16 << 10
RECORD_BYTES = 1000


def beside_flow(
    target: Target, topics: dict[str, int], small: str, mb_per_s: float, warmup_s: float, seconds: float
) -> Figures:
    """One request at a time to a separate partition, while the given rate flows to the others, round robin."""
    flow = _Flow(target, topics, mb_per_s)
    flow.start()
    try:
        figures = one_in_flight.produce(target, small, 1, 100, warmup_s, seconds)
    finally:
        flow.is_over.set()
        flow.join()
    if flow.failure:
        raise BenchError(f"the flow ended: {flow.failure}")
    return figures | {"flow_mb_per_s": flow.mb_per_s, "rss_mb": memory(target.pid).rss_mb}


class _Flow(threading.Thread):
    """Writes at a constant rate until stopped; `mb_per_s` is the achieved rate."""

    def __init__(self, target: Target, topics: dict[str, int], mb_per_s: float) -> None:
        super().__init__(daemon=True)
        self.target = target
        self.partitions = [(topic, number) for topic, count in topics.items() for number in range(count)]
        self.goal_mb_per_s = mb_per_s
        self.mb_per_s = 0.0
        self.failure = ""
        self.is_over = threading.Event()

    def run(self) -> None:
        batch = batch_of_bytes(BATCH_BYTES, RECORD_BYTES).data
        written = 0
        began = time.perf_counter()
        try:
            with Connection(self.target) as connection:
                while not self.is_over.is_set():
                    topic, number = self.partitions[written % len(self.partitions)]
                    check_produced(connection.call(wire.produce_request(topic, number, batch)), topic)
                    written += 1
                    due = began + written * len(batch) / 1e6 / self.goal_mb_per_s
                    time.sleep(max(0.0, due - time.perf_counter()))
        except (OSError, BenchError) as error:
            self.failure = str(error)
        self.mb_per_s = written * len(batch) / 1e6 / (time.perf_counter() - began)
