"""Complete pipelines of the README and of the page of examples run as written."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.running import pipeline_of, produce, read_all, run_batch, run_once

from ottla.pipelines.demo.generator import first_records
from ottla.pipelines.demo.site import visits
from ottla.pipelines.model.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.broker import Broker

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "pipeline-examples.md")
BLOCKS: list[str] = [
    text for page in PAGES for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
]
FILES = {found[1]: text for text in BLOCKS if (found := re.match(r"name: (\S+)", text))}


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    return ottla_broker.bootstrap_servers


def written(name: str, bootstrap: str, folder: Path) -> Pipeline:
    return pipeline_of(f"bootstrap.servers: {bootstrap}\n{FILES[name]}", folder)


def values(bootstrap: str, topic: str) -> list[Any]:
    return [message.json for message in read_all(bootstrap, topic)]


def at(minute: float) -> str:
    return f"2026-01-05T12:{int(minute):02d}:{round(minute % 1 * 60):02d}Z"


def test_words_are_counted_in_sliding_windows(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    words = [(7, "cat"), (8, "dog"), (11, "cat"), (11, "owl"), (14, "dog"), (4, "dog")]
    produce(bootstrap, "timed-words", [{"at": at(minute), "word": word} for minute, word in words])
    run_batch(spark, written("windowed-word-count", bootstrap, tmp_path), tmp_path)
    wanted: Counter[tuple[str, str]] = Counter()
    for minute, word in words:
        for start in range(minute // 5 * 5, minute - 10, -5):
            wanted[f"{11 + (start >= 0)}:{start % 60:02d}", word] += 1
    found = values(bootstrap, "word-windows")
    assert {(row["window_start"][11:16], row["word"]): row["count"] for row in found} == wanted


def test_sessions_end_with_a_pause(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    clicks = [(0, "ann"), (3, "ann"), (7, "ann"), (13, "ann"), (5, "bob"), (9, "bob"), (30, "bob")]
    produce(bootstrap, "clicks", [{"at": at(minute), "user": user} for minute, user in clicks])
    run_batch(spark, written("sessions", bootstrap, tmp_path), tmp_path)
    found = values(bootstrap, "click-sessions")
    assert sorted(
        (row["user"], row["window_start"][14:16], row["window_end"][14:16], row["clicks"]) for row in found
    ) == [
        ("ann", "00", "12", 3),
        ("ann", "13", "18", 1),
        ("bob", "05", "14", 2),
        ("bob", "30", "35", 1),
    ]


def test_each_id_goes_on_once(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    produce(bootstrap, "repeated-events", [{"guid": f"g{n % 40}", "at": at(n % 40 / 60)} for n in range(100)])
    run_batch(spark, written("unique-events", bootstrap, tmp_path), tmp_path)
    assert sorted(row["guid"] for row in values(bootstrap, "unique-events")) == sorted(f"g{n}" for n in range(40))


def test_advertisements_find_their_clicks(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    produce(bootstrap, "ad-impressions", [{"ad": f"ad{n}", "shown": at(n)} for n in range(4)])
    clicks = [
        ("ad0", "12:20"),
        ("ad1", "13:30"),
        ("ad2", "12:01"),
        ("ad3", "12:03"),
        ("ad3", "12:50"),
        ("ad9", "12:03"),
    ]
    produce(bootstrap, "ad-clicks", [{"ad": ad, "clicked": f"2026-01-05T{time}:00Z"} for ad, time in clicks])
    run_batch(spark, written("advertisements", bootstrap, tmp_path), tmp_path)
    found = [(row["ad"], (row.get("clicked") or "")[11:16]) for row in values(bootstrap, "ad-results")]
    assert sorted(found) == [("ad0", "12:20"), ("ad1", ""), ("ad2", ""), ("ad3", "12:03"), ("ad3", "12:50")]


def test_the_first_pipeline_of_the_readme_counts_what_was_sold(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    records = first_records(visits, 2_000)
    produce(bootstrap, "site-activity", [(record.key, record.value) for record in records])
    counts = run_once(spark, written("sold", bootstrap, tmp_path), tmp_path / "state")
    sold: dict[str, str] = {}
    for record in records:
        with suppress(ValueError):
            event = json.loads((record.value or b"").decode())
            datetime.fromisoformat(event["at"])
            if event["action"] == "buy":
                sold[event["id"]] = event["item"]
    with closing(sqlite3.connect(tmp_path / "sold.db")) as database:
        found = dict(database.execute("SELECT item, sold FROM sold").fetchall())
    assert found == Counter(sold.values())
    assert all(step.came == step.kept + step.filtered + step.late + step.dead for step in counts)
