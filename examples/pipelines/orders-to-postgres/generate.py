"""Orders of a shop whose producer repeats unconfirmed orders: the same order arrives once, twice or three times.

python generate.py --count 5000        # to the topic orders
python generate.py --expect            # what must be in the table
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator


def orders(plan: GeneratorSettings) -> Iterator[Record]:
    """Every tenth order is sent again within ten seconds."""
    chance = plan.random_generator()
    waiting: list[tuple[int, int, Record]] = []
    now_ms = float(plan.start_ms)
    number = 0
    while True:
        number += 1
        now_ms += chance.expovariate(plan.rate / 1000)
        at = datetime.fromtimestamp(int(now_ms) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        order = {
            "order": f"{plan.start_ms:x}-{number:06d}",
            "customer": f"customer-{chance.randint(1, 80):02d}",
            "at": at,
            "amount": f"{chance.randint(100, 50_000) / 100:.2f}",
        }
        record = Record(int(now_ms), order["customer"], json.dumps(order).encode())
        for _ in range(chance.choice((1,) * 9 + (2, 3))):
            heapq.heappush(waiting, (record.at_ms, number, record))
            record = record._replace(at_ms=record.at_ms + chance.randint(100, 10_000))
        while waiting and waiting[0][0] <= now_ms:
            yield heapq.heappop(waiting)[2]


def expected(records: Iterable[Record]) -> dict[str, Any]:
    """Each order once, regardless of repetitions."""
    found = {}
    count = 0
    for record in records:
        order = json.loads(record.value or b"{}")
        found[order["order"]] = order
        count += 1
    amounts = [Decimal(order["amount"]) for order in found.values()]
    return {"records": count, "orders": len(found), "amount": str(sum(amounts))}


if __name__ == "__main__":
    sys.exit(run_generator("Orders, some of them sent again.", "orders", orders, expected))
