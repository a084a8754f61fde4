"""Rounds of kills over a Spark query, and what its result must be: computed here, without Spark."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.pipelines.sink_helpers import committed, new_topic

from ottla.pipelines.spark.gateway import NO_DRIVER_PYTHON

PROGRAM = Path(__file__).parent / "sink_driver.py"
START = 1_760_000_000
USERS = {user: ("fi", "se", "no", "ee")[user % 4] for user in range(40)}
STRANGERS = 5  # users that no table knows: the join drops them
RUN_SECONDS_MAX = 300.0

Row = tuple[int, str, str, int]


class Round:
    """Input, a plan of deaths, and the comparison."""

    def __init__(self, bootstrap: str, folder: Path, seed: int = 1, events: int = 4000, batches: int = 10) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.source, self.target = new_topic(bootstrap, 3), new_topic(bootstrap, 3)
        chance = random.Random(seed)
        self.events = [
            (chance.randrange(len(USERS) + STRANGERS), f"page-{chance.randrange(8)}", START + number * 300 // events)
            for number in range(events)
        ]
        self.per_batch = events // batches
        self.query = f"round-{uuid.uuid4().hex[:8]}"
        self.starts = 0
        self._send()

    def __repr__(self) -> str:
        return f"Round({self.query}, {self.starts} starts)"

    def _send(self) -> None:
        """In the order of time, and at the end something from the next day: it closes every window."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        last = [(0, "page-0", START + 86_400 + number) for number in range(2)]
        for number, (user, page, at) in enumerate([*self.events, *last]):
            value = json.dumps({"user": user, "page": page, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))})
            producer.produce(self.source, value, partition=number % 3)
        assert producer.flush(60) == 0

    def plan(self, deaths: list[tuple[int, str]], has_markers: bool = True, **more: Any) -> Path:
        path = self.folder / "plan.json"
        plan = {
            "bootstrap": self.bootstrap,
            "source": self.source,
            "target": self.target,
            "query": self.query,
            "folder": str(self.folder),
            "per_batch": self.per_batch,
            "users": USERS,
            "has_markers": has_markers,
            "deaths": [{"batch": batch, "point": point} for batch, point in deaths],
            **more,
        }
        path.write_text(json.dumps(plan))
        return path

    def start(self, plan: Path) -> subprocess.Popen[bytes]:
        self.starts += 1
        environment = {**os.environ, **NO_DRIVER_PYTHON, "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"}
        with (self.folder / f"driver-{self.starts}.log").open("wb") as log:
            return subprocess.Popen([sys.executable, str(PROGRAM), str(plan)], stdout=log, stderr=log, env=environment)

    def run(self, plan: Path, starts_max: int, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Start the driver until it ends well; how often it had to be started."""
        for number in range(1, starts_max + 1):
            driver = self.start(plan)
            deadline = time.monotonic() + RUN_SECONDS_MAX
            while driver.poll() is None:
                meanwhile()
                time.sleep(0.05)
                assert time.monotonic() < deadline, self.log()
            if driver.returncode == 0:
                return number
        raise AssertionError(f"{starts_max} starts were not enough:\n{self.log()}")

    def log(self) -> str:
        return (self.folder / f"driver-{self.starts}.log").read_text(errors="replace")[-6000:]

    def found(self) -> Counter[Row]:
        rows = (json.loads(message.value()) for message in committed(self.bootstrap, self.target))
        return Counter((row["second"], row["page"], row["country"], row["count"]) for row in rows)

    def expected(self) -> Counter[Row]:
        counts: Counter[tuple[int, str, str]] = Counter()
        for user, page, at in self.events:
            if user in USERS:
                counts[at, page, USERS[user]] += 1
        return Counter({(*key, count): 1 for key, count in counts.items()})

    def assert_exactly_once(self) -> None:
        found, expected = self.found(), self.expected()
        more, less = found - expected, expected - found
        assert not more, f"{more.total()} of {expected.total()} rows too many, such as {more.most_common(3)}"
        assert not less, f"{less.total()} of {expected.total()} rows are missing, such as {list(less)[:3]}"
