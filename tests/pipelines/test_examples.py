"""Every example, run over a bounded history and compared with numbers that were found without Spark."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.conformance.recipes import running_postgresql
from tests.pipelines.running import produce, read_all, run_batch

from ottla.operations.pipeline_runs.snapshots import StepCount
from ottla.pipelines.demo.generator import GeneratorSettings, Record, first_records
from ottla.pipelines.running.loading import load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.broker import Broker

pytestmark = pytest.mark.ottla(settings={"num.partitions": 2})

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


class Ran(NamedTuple):
    """`want` is what the generator's own computation says, `counts` what became of the rows at each step."""

    want: dict[str, Any]
    counts: list[StepCount]
    folder: Path
    bootstrap: str

    def step(self, stream: str, step: str) -> StepCount:
        return next(count for count in self.counts if (count.stream, count.step) == (stream, step))

    def values(self, topic: str) -> list[Any]:
        return [message.json for message in read_all(self.bootstrap, topic)]

    def table(self, file: str, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / file)) as database:
            return database.execute(query).fetchall()


Run = Callable[..., Ran]


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture
def run(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Run:
    """Copies an example, sends so many records of its generator, runs its pipeline over them."""

    def run(name: str, topic: str, make: str, count: int, rate: float = 100.0, **changes: object) -> Ran:
        folder = tmp_path / name
        shutil.copytree(EXAMPLES / name, folder)
        generator = load(folder / "generate.py")
        records = first_records(getattr(generator, make), count, GeneratorSettings(rate=rate))
        send(bootstrap, topic, records)
        pipeline = load_pipeline(folder / "pipeline.yaml", {"bootstrap_servers": bootstrap, **changes}).pipeline
        counts = run_batch(spark, pipeline, tmp_path / "state")
        return Ran(generator.expected(records), counts, folder, bootstrap)

    return run


def load(file: Path) -> ModuleType:
    """A module of an example; its folder has no package."""
    spec = importlib.util.spec_from_file_location(f"example_{file.parent.name}_{file.stem}".replace("-", "_"), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def send(bootstrap: str, topic: str, records: list[Record]) -> None:
    produce(bootstrap, topic, [(record.key, record.value) for record in records])


def moment(text: str) -> str:
    """The time of day in a timestamp, as tables and JSON have it."""
    return text[11:19]


def test_site_activity_finds_what_is_hot_bought_together_and_slow(run: Run) -> None:
    ran = run("site-activity", "site-activity", "visits", 3_000, rate=30)
    want = ran.want
    assert ran.step("events", "parse").dead == want["dead"] > 0
    assert ran.step("events", "deduplicate").filtered == want["duplicates"] > 0
    clean = ran.values("site-activity-clean")
    assert len(clean) == len({event["id"] for event in clean}) == want["events"]
    letters = read_all(ran.bootstrap, "site-activity-dead-letters")
    assert len(letters) == want["dead"]
    assert all(letter.headers["ottla.reason"] for letter in letters)

    file = "site-activity.db"
    views: dict[str, dict[str, int]] = defaultdict(dict)
    for start, page, count in ran.table(file, "SELECT window_start, page, views FROM views"):
        views[moment(start)][page] = count
    assert views == want["views"]
    hot: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for start, page, count in ran.table(file, "SELECT window_start, page, views FROM hot_pages ORDER BY 1, rank"):
        hot[moment(start)].append((page, count))
    assert hot == want["hot"]
    rules: dict[str, list[list[object]]] = defaultdict(list)
    for rule in ran.values("bought-together"):
        rules[moment(rule["window_start"])].append(
            [*rule["when"], rule["then"], rule["together"], pytest.approx(rule["confidence"])]
        )
    assert {start: sorted(found, key=str) for start, found in rules.items()} == {
        start: sorted(found, key=str) for start, found in want["rules"].items() if found
    }
    slow = ran.table(file, "SELECT id FROM slow_requests ORDER BY id")
    assert [row[0] for row in slow] == want["slow"]
    assert want["slow"]


def test_log_lines_become_errors_per_minute(run: Run) -> None:
    ran = run("log-collection", "access-log", "lines", 4_000, rate=20)
    assert ran.step("requests", "parse").dead == ran.want["dead"] > 0
    errors = ran.table("logs.db", "SELECT window_start, errors FROM errors_per_minute")
    assert {start[11:16]: count for start, count in errors} == ran.want["errors_per_minute"]
    assert sum(row["errors"] for row in ran.values("errors-per-minute")) == sum(count for _, count in errors)
    statuses = ran.table("logs.db", "SELECT response, requests FROM statuses")
    assert {str(status): count for status, count in statuses} == ran.want["requests_by_status"]


def test_sensors_have_minutes_and_alarms(run: Run, spark: SparkSession) -> None:
    ran = run("sensors", "sensor-readings", "readings", 4_000, rate=20)
    assert ran.step("readings", "parse").dead == ran.want["dead"] > 0
    rows = spark.read.parquet(str(ran.folder / "minutes")).collect()
    found = [
        [
            row["sensor"],
            f"{row['window_start']:%H:%M}",
            row["readings"],
            row["lowest"],
            row["highest"],
            round(row["mean"], 6),
        ]
        for row in rows
    ]
    assert sorted(found) == ran.want["minutes"]
    assert len(ran.values("sensor-minutes")) == len(found)
    alarms = [[alarm["sensor"], alarm["at"][:23] + "Z", alarm["degrees"]] for alarm in ran.values("sensor-alarms")]
    assert sorted(alarms) == sorted(ran.want["spikes"])
    assert alarms


def test_cleaned_sign_ups_are_routed_by_country(run: Run) -> None:
    ran = run("cleaning", "sign-ups-raw", "sign_ups", 1_500)
    want = ran.want
    assert (ran.step("main", "parse").dead, ran.step("main", "rule").dead) == (want["unreadable"], want["rules_broken"])
    counts = Counter(row["country"] for topic in ("sign-ups-eu", "sign-ups-elsewhere") for row in ran.values(topic))
    assert counts == want["by_country"]
    assert {row["country"] for row in ran.values("sign-ups-eu")} == {"DE", "FR"}
    assert not any("person" in row["mail"] for row in ran.values("sign-ups-eu"))


def test_words_are_counted_as_in_the_guide_of_spark(run: Run) -> None:
    ran = run("word-count", "lines", "lines", 1_000)
    assert dict(ran.table("words.db", "SELECT word, count FROM words")) == ran.want["counts"]


def test_orders_find_their_customers(run: Run, bootstrap: str) -> None:
    orders = load(EXAMPLES / "orders-to-postgres" / "generate.py")
    sent = first_records(orders.orders, 2_000, GeneratorSettings(seed=2))
    send(bootstrap, "orders", sent)
    ran = run("orders-with-customers", "customers", "customers", 300)
    found = ran.values("orders-with-customers")
    assert len(found) == orders.expected(sent)["orders"]
    assert all(order.get("country") == ran.want["newest"].get(order["customer"]) for order in found)
    assert any(order.get("country") is None for order in found)


@pytest.mark.ottla(topics=["money"])
def test_a_notebook_needs_none_of_our_files(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    orders = load(EXAMPLES / "orders-to-postgres" / "generate.py")
    sent = first_records(orders.orders, 3_000, GeneratorSettings(seed=3, rate=10))
    send(bootstrap, "orders", sent)
    rows = load(EXAMPLES / "notebook.py").main(spark, bootstrap, str(tmp_path)).collect()
    wanted: dict[str, set[str]] = defaultdict(set)
    for order in (json.loads(record.value or b"{}") for record in sent):
        wanted[order["at"][11:16]].add(order["order"])
    closed = sorted(wanted)[: len(rows)]
    assert len(closed) >= len(wanted) - 2  # the watermark has not passed the last ones yet
    assert {f"{row['minute']:%H:%M}": row["orders"] for row in rows} == {
        minute: len(wanted[minute]) for minute in closed
    }


def test_orders_come_to_postgresql_once(run: Run) -> None:
    psycopg = pytest.importorskip("psycopg")
    with running_postgresql() as server:
        ran = run("orders-to-postgres", "orders", "orders", 2_000, **{"to.postgres": server})
        with psycopg.connect(server) as database:
            found = database.execute('SELECT count(*), count(DISTINCT "order"), sum(amount) FROM orders').fetchone()
    assert found is not None
    assert found[:2] == (ran.want["orders"], ran.want["orders"])
    assert str(found[2]) == ran.want["amount"]
    assert ran.step("main", "deduplicate").filtered == ran.want["records"] - ran.want["orders"] > 0


def test_a_pipeline_reads_the_same_in_yaml_and_in_python() -> None:
    folder = EXAMPLES / "site-activity"
    assert load_pipeline(folder / "pipeline.py").pipeline == load_pipeline(folder / "pipeline.yaml").pipeline
