"""Lines of a web server's access log in the format that Apache and nginx call "combined", some of them damaged.

python generate.py --count 5000        # to the topic access-log
python generate.py --expect            # what the pipeline must find in them
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator

PATHS = ("/", "/index.html", "/news", "/images/logo.png", "/api/orders?page=2", "/search?q=tea+pot", "/old-page")
BROWSERS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)")
LINE = re.compile(r'(\S+) \S+ (\S+) \[([^\]]+)\] "([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3}) (\d+|-) "([^"]*)" "([^"]*)"')


def lines(plan: GeneratorSettings) -> Iterator[Record]:
    """One request after the other; from the third minute on the server has a bad minute from time to time."""
    chance = plan.random_generator()
    now_ms = float(plan.start_ms)
    while True:
        now_ms += chance.expovariate(plan.rate / 1000)
        minute = int(now_ms - plan.start_ms) // 60_000
        host = f"192.0.2.{chance.randint(1, 60)}"
        line = _line(chance, host, now_ms, errors_share=0.3 if minute % 3 == 2 else 0.03)
        if chance.random() < 0.01:
            line = chance.choice((line[: len(line) // 2], "-- MARK --", line.replace('"', "", 1)))
        yield Record(int(now_ms), host, line.encode())


def expected(records: Iterable[Record]) -> dict[str, Any]:
    """Errors (status 500 and above) a minute, and bytes by status, counted without Spark."""
    errors: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    unreadable = 0
    for record in records:
        match = LINE.fullmatch((record.value or b"").decode())
        if match is None:
            unreadable += 1
            continue
        at = datetime.strptime(match[3], "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC)
        statuses[match[6]] += 1
        if int(match[6]) >= 500:
            errors[at.strftime("%H:%M")] += 1
    return {"errors_per_minute": dict(errors), "requests_by_status": dict(statuses), "dead": unreadable}


def _line(chance: Random, host: str, now_ms: float, errors_share: float) -> str:
    at = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
    path = chance.choice(PATHS)
    status = chance.choice((500, 502, 503)) if chance.random() < errors_share else 404 if path == "/old-page" else 200
    size = "-" if status == 404 else str(chance.randint(200, 40_000))
    user = chance.choice(("-", "-", "-", "alice"))
    return f'{host} - {user} [{at}] "GET {path} HTTP/1.1" {status} {size} "-" "{chance.choice(BROWSERS)}"'


if __name__ == "__main__":
    sys.exit(run_generator("Lines of a web server's log.", "access-log", lines, expected))
