"""Customers, most of whom move to another country later: the newest record of each has the current one.

python generate.py --count 200                     # to the topic customers
python ../orders-to-postgres/generate.py           # their orders
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator

COUNTRIES = ("DE", "FR", "US", "JP")
CUSTOMERS = 70  # ten more have orders, but no customer record


def customers(plan: GeneratorSettings) -> Iterator[Record]:
    """Every customer once, then moves."""
    chance = plan.random_generator()
    number = 0
    while True:
        number += 1
        customer = f"customer-{number if number <= CUSTOMERS else chance.randint(1, CUSTOMERS):02d}"
        value = {"customer": customer, "country": chance.choice(COUNTRIES)}
        yield Record(plan.start_ms + int(number * 1000 / plan.rate), customer, json.dumps(value).encode())


def expected(records: Iterable[Record]) -> dict[str, Any]:
    """The current countries."""
    newest = {}
    for record in records:
        customer = json.loads(record.value or b"{}")
        newest[customer["customer"]] = customer["country"]
    return {"countries": dict(Counter(newest.values())), "newest": newest}


if __name__ == "__main__":
    sys.exit(run_generator("Customers, some of whom move.", "customers", customers, expected))
