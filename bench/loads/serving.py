"""When a restarted broker serves: per partition, and the latency of a small one meanwhile."""

import time
from collections.abc import Callable

from bench import wire
from bench.batches import batch_of, payloads
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.raw_client import Connection, Target, produce_error

PAUSE_SECONDS = 0.02
SMALL_PAUSE_SECONDS = 0.001
FRESH_ERRORS = frozenset((3, 5, 6, 9, 56))  # not here yet: the codes of a partition that is being opened


class Watch:
    """Poll every partition for its end until all answer; times count from the start of the process."""

    def __init__(self, target: Target, started: float, check_alive: Callable[[], None]) -> None:
        self.target = target
        self.started = started
        self.check_alive = check_alive
        self.batch = batch_of([payloads(100)[0]]).data
        self.latencies_ns: list[int] = []

    def __repr__(self) -> str:
        return f"<Watch {len(self.latencies_ns)} requests to the small partition>"

    def run(self, topics: dict[str, int], small: str) -> Figures:
        """`small` is a topic with one partition that nothing has to be recovered for."""
        with self._connect() as connection:
            first_s = time.perf_counter() - self.started
            small_s = 0.0
            waiting = {topic: list(range(count)) for topic, count in topics.items()}
            while waiting:
                self.check_alive()
                if self._is_small_served(connection, small):
                    small_s = small_s or time.perf_counter() - self.started
                    self._load_small(connection, small)
                waiting = self._not_served(connection, waiting)
                time.sleep(PAUSE_SECONDS)
            all_s = time.perf_counter() - self.started
        figures = {"first_answer_s": first_s, "all_served_s": all_s, "small_served_s": small_s or all_s}
        return figures | {f"small_{name}": value for name, value in latency_figures(self.latencies_ns).items()}

    def _connect(self) -> Connection:
        while True:
            self.check_alive()
            try:
                return Connection(self.target, 30)
            except OSError:
                time.sleep(PAUSE_SECONDS)

    def _load_small(self, connection: Connection, small: str) -> None:
        """A few writes between two polls of the others: the experience of a small partition's client."""
        for _ in range(20):
            sent = time.perf_counter_ns()
            if not self._is_served(connection, small, 0):
                raise BenchError(f"{small} was served and is not any more")
            self.latencies_ns.append(time.perf_counter_ns() - sent)
            time.sleep(SMALL_PAUSE_SECONDS)

    def _is_small_served(self, connection: Connection, small: str) -> bool:
        return bool(self.latencies_ns) or self._is_served(connection, small, 0)

    def _not_served(self, connection: Connection, waiting: dict[str, list[int]]) -> dict[str, list[int]]:
        left: dict[str, list[int]] = {}
        for (topic, number), error in wire.read_list_offsets(
            connection.call(wire.list_offsets_request(waiting))
        ).items():
            if error:
                self._check(error, topic, number)
                left.setdefault(topic, []).append(number)
        return left

    def _check(self, error: int, topic: str, number: int) -> None:
        if error not in FRESH_ERRORS:
            raise BenchError(f"{topic}-{number} answers with error {error}")

    def _is_served(self, connection: Connection, topic: str, number: int) -> bool:
        error = produce_error(connection.call(wire.produce_request(topic, number, self.batch)), topic)
        if error:
            self._check(error, topic, number)
        return error == 0


def ask_metadata(target: Target, version: int, times: int) -> Figures:
    """Metadata of all topics on one connection: the first answer, and the median of the others."""
    request = wire.all_metadata_request(version)
    milliseconds = []
    answer = bytearray()
    with Connection(target) as connection:
        for _ in range(times):
            start = time.perf_counter()
            answer = connection.call(request)
            milliseconds.append((time.perf_counter() - start) * 1000)
    later = sorted(milliseconds[1:])
    return {"first_ms": milliseconds[0], "later_ms": later[len(later) // 2], "bytes": float(len(answer))}
