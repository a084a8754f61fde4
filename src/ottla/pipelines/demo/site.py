"""Sends the activity of a web site to a topic: python -m ottla.pipelines.demo.site --rate 100."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ottla.pipelines.demo.generating import Record, run_generator
from ottla.pipelines.demo.visitors import visits

TOPIC = "site-activity"


def count(records: Iterable[Record]) -> dict[str, Any]:
    """What must be found in them is told by examples/pipelines/site-activity/generate.py."""
    return {"records": sum(1 for _ in records)}


if __name__ == "__main__":
    sys.exit(run_generator("Activity on a web site.", TOPIC, visits, count))
