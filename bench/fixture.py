"""How long a test waits for its broker: `python -m bench.fixture [ROUNDS]`.

Ready is from the call of start() until a topic is there and its leader answers; gone is the whole of close(). The first
round is left out: it reads the program from the disk.
"""

import sys
import time
from statistics import median
from typing import NamedTuple

from ottla.testing import Broker

ROUNDS = 20
READY_SECONDS_GOAL = 0.4
GONE_SECONDS_GOAL = 0.2


class Round(NamedTuple):
    """Seconds of one broker's life that a test waits for."""

    ready: float
    gone: float


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    measured = [measure() for _ in range(rounds + 1)][1:]
    is_met = report("ready", [each.ready for each in measured], READY_SECONDS_GOAL)
    return 0 if report("gone", [each.gone for each in measured], GONE_SECONDS_GOAL) and is_met else 1


def measure() -> Round:
    began = time.perf_counter()
    broker = Broker(topics=["orders"]).start()
    ready = time.perf_counter()
    broker.close()
    return Round(ready - began, time.perf_counter() - ready)


def report(what: str, seconds: list[float], goal: float) -> bool:
    """One line with the figures; whether the median reaches the goal."""
    is_met = median(seconds) <= goal
    print(
        f"{what:6} median {median(seconds):.3f} s, slowest {max(seconds):.3f} s, "
        f"goal {goal} s: {'met' if is_met else 'missed'}"
    )
    return is_met


if __name__ == "__main__":
    sys.exit(main())
