"""Lines of text.

python generate.py --count 500         # to the topic lines
python generate.py --expect            # how often each word is in them
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from ottla.pipelines.demo.generator import GeneratorSettings, Record, run_generator

WORDS = (
    "the",
    "of",
    "and",
    "owl",
    "cat",
    "dog",
    "brook",
    "stone",
    "lamp",
    "river",
    "morning",
    "letter",
    "garden",
    "ladder",
)
WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))


def lines(plan: GeneratorSettings) -> Iterator[Record]:
    """A few words each, some of them often."""
    chance = plan.random_generator()
    number = 0
    while True:
        number += 1
        words = chance.choices(WORDS, cum_weights=WEIGHTS, k=chance.randint(1, 12))
        yield Record(plan.start_ms + int(number * 1000 / plan.rate), None, " ".join(words).encode())


def expected(records: Iterable[Record]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update((record.value or b"").decode().split(" "))
    return {"counts": dict(counts)}


if __name__ == "__main__":
    sys.exit(run_generator("Lines of text.", "lines", lines, expected))
