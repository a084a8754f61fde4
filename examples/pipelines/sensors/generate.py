"""Readings of temperature sensors as CSV lines: a value each second, a daily swing, noise, and some faults.

python generate.py --count 5000        # to the topic sensor-readings
python generate.py --expect            # what the pipeline must find in them
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator

SENSORS = tuple(f"sensor-{number:02d}" for number in range(1, 11))
SPIKE_SHARE = 1 / 500
SPIKE = 15.0  # degrees, where noise is 0.2
QUIET_READINGS = 50  # of each sensor, before its first fault: anomaly detection needs a baseline


def readings(plan: GeneratorSettings) -> Iterator[Record]:
    """Sensors in turn; about one reading in 500 is a spike, one in 200 is not a number."""
    chance = plan.random_generator()
    base = {sensor: chance.uniform(18, 24) for sensor in SENSORS}
    number = 0
    while True:
        at_ms = plan.start_ms + int(number * 1000 / plan.rate)
        sensor = SENSORS[number % len(SENSORS)]
        swing = 3 * math.sin(2 * math.pi * at_ms / 86_400_000)
        value = base[sensor] + swing + chance.gauss(0, 0.2)
        if number > QUIET_READINGS * len(SENSORS) and chance.random() < SPIKE_SHARE:
            value += chance.choice((-SPIKE, SPIKE))
        text = chance.choice(("", "NaN?", "error 7")) if chance.random() < 0.005 else f"{value:.2f}"
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        yield Record(at_ms, sensor, f"{sensor},{at},{text}".encode())
        number += 1


def expected(records: Iterable[Record]) -> dict[str, Any]:
    """Readings, lowest and highest of each sensor and minute, and the spikes: 5 degrees off the middle of 50 before."""
    windows: dict[tuple[str, str], list[float]] = defaultdict(list)
    spikes: list[list[object]] = []
    before: dict[str, list[float]] = defaultdict(list)
    dead = 0
    for record in records:
        sensor, at, text = (record.value or b"").decode().split(",")
        try:
            value = float(text)
        except ValueError:
            dead += 1
            continue
        windows[sensor, at[11:16]].append(value)
        usual = sorted(before[sensor][-50:])
        if len(usual) >= 10 and abs(value - usual[len(usual) // 2]) > 5:
            spikes.append([sensor, at, value])
        else:
            before[sensor].append(value)
    table = [
        [sensor, minute, len(values), min(values), max(values), round(sum(values) / len(values), 6)]
        for (sensor, minute), values in sorted(windows.items())
    ]
    return {"minutes": table, "spikes": spikes, "dead": dead}


if __name__ == "__main__":
    sys.exit(run_generator("Readings of sensors.", "sensor-readings", readings, expected))
