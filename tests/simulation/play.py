"""`python -m tests.simulation.play SCENARIO SEEDS [FIRST]`: play seeds until a promise is broken."""

from __future__ import annotations

import sys
import time
from importlib import import_module


def main() -> int:
    scenario = import_module(f"tests.simulation.{sys.argv[1]}")
    count = int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    started = time.monotonic()
    for seed in range(first, first + count):
        scenario.simulate(seed)
    seconds = time.monotonic() - started
    print(f"{count} seeds of {sys.argv[1]} in {seconds:.1f} s: {count * 60 / seconds:,.0f} a minute, nothing broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
