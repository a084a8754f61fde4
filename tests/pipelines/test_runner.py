"""A pipeline from topic to topic: every row is counted, dead rows become dead letters, progress is a consumer group."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.pipelines.running import Message, pipeline_of, produce, read_all, run_batch, run_once
from tests.pipelines.sink_helpers import committed, new_topic

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.groups import committed_offsets
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.runner import Runner, RunOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
streams:
  clicks:
    from: {{topic: {name}-in, max_per_batch: 400}}
    steps:
      - parse: {{format: json, schema: {{user: string, ms: int}}}}
  quick:
    from: clicks
    steps:
      - filter: ms < 500
    to:
      - {{topic: {name}-quick, key: user, where: "user <> 'u1'"}}
      - {{topic: {name}-one, key: user, where: "user = 'u1'", columns: [ms], delivery: at-least-once}}
  every:
    from: clicks
    to: {{topic: {name}-every, key: user}}
"""


@pytest.fixture
def name() -> str:
    return f"runner-{uuid.uuid4().hex[:8]}"


def fill(bootstrap: str, name: str, first: int, count: int) -> None:
    records = [{"user": f"u{n % 5}", "ms": n} if n % 10 else f"broken {n}" for n in range(first, first + count)]
    produce(bootstrap, f"{name}-in", records)


def values_of(messages: list[Message]) -> list[int]:
    return sorted(message.json["ms"] for message in messages)


def test_rows_are_routed_counted_and_committed(spark: SparkSession, bootstrap: str, name: str, tmp_path: Path) -> None:
    fill(bootstrap, name, 0, 1000)
    pipeline = pipeline_of(FILE.format(name=name, bootstrap=bootstrap), tmp_path)
    counts = run_once(spark, pipeline, tmp_path)

    shown = [(c.stream, c.step, c.came, c.kept, c.filtered, c.late, c.dead) for c in counts]
    parse = ("clicks", "parse", 1000, 900, 0, 0, 100)
    assert shown == [parse, ("quick", "filter", 900, 450, 450, 0, 0), parse]
    good = [n for n in range(1000) if n % 10]
    assert values_of(read_all(bootstrap, f"{name}-quick")) == [n for n in good if n < 500 and n % 5 != 1]
    assert [set(message.json) for message in read_all(bootstrap, f"{name}-one")] == [{"ms"}] * 100
    assert values_of(read_all(bootstrap, f"{name}-every")) == good

    letters = read_all(bootstrap, f"{name}-dead-letters")
    assert Counter(int(letter.headers["ottla.offset"]) for letter in letters) == Counter(range(0, 1000, 10))
    assert letters[0].value == b"broken 0"
    assert letters[0].headers["ottla.reason"].startswith("not JSON")
    assert letters[0].headers["ottla.step"] == "clicks 1 parse"
    with Client(bootstrap) as client:
        for stream in ("quick", "every"):
            offsets = committed_offsets(client, f"ottla-pipeline-{name}.{stream}")
            assert offsets[TopicPartition(f"{name}-in", 0)].offset == 1000


def test_a_second_run_goes_on_and_a_batch_run_takes_all(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    text = f"""\
name: {name}
bootstrap.servers: {bootstrap}
from: {{topic: {name}-in}}
steps:
  - parse: {{format: json, schema: {{user: string, ms: int}}}}
to: {{topic: {name}-out, key: user}}
"""
    pipeline = pipeline_of(text, tmp_path)
    fill(bootstrap, name, 0, 100)
    run_once(spark, pipeline, tmp_path)
    fill(bootstrap, name, 100, 50)
    (second,) = run_once(spark, pipeline, tmp_path)
    assert (second.came, second.dead) == (50, 5)
    expected = [n for n in range(150) if n % 10]
    assert values_of(read_all(bootstrap, f"{name}-out")) == expected

    (whole,) = run_batch(spark, pipeline, tmp_path)
    assert (whole.came, whole.dead) == (150, 15)
    assert values_of(read_all(bootstrap, f"{name}-out")) == sorted(expected * 2)
    assert len(read_all(bootstrap, f"{name}-dead-letters")) == 30


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("filter: msx < 5", "step 2, filter: there is no column 'msx'; there are: ms, user"),
        ("filter: ms <", "step 2, filter, where: 'ms <' ends too early"),
        ("filter: {equals: {other: 1}}", "there is no column 'other'"),
    ],
)
def test_what_spark_refuses_is_told_at_its_place(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path, step: str, expected: str
) -> None:
    produce(bootstrap, f"{name}-in", ["x"])
    text = f"""\
name: {name}
bootstrap.servers: {bootstrap}
from: {{topic: {name}-in}}
steps:
  - parse: {{format: json, schema: {{user: string, ms: int}}}}
  - {step}
to: {{topic: {name}-out}}
"""
    with pytest.raises(PipelineError) as caught:
        Runner(pipeline_of(text), spark, RunOptions(str(tmp_path))).start()
    assert expected in caught.value.texts()[0]


def test_records_are_copied_to_the_topic_of_the_sink(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    """Records know where they came from: that is not where they go, unless the sink says so."""
    source, partitions = new_topic(bootstrap, 4), range(4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in partitions:
        producer.produce(source, b"from %d" % number, b"key", partition=number, timestamp=1_700_000_000_000)
    producer.flush()
    text = (
        f"name: {name}\nbootstrap.servers: {bootstrap}\nstreams:\n  all:\n    from: {{topic: {source}}}\n    to:\n"
        f"      - {{topic: {name}-few, format: raw, partitions: 2}}\n"
        f"      - {{topic: {name}-same, format: raw, partitions: 4, partition: partition, delivery: at-least-once}}\n"
    )
    run_once(spark, pipeline_of(text, tmp_path), tmp_path)
    copies = [f"from {number}".encode() for number in partitions]
    assert [message.value() for message in committed(bootstrap, source)] == copies
    few, same = committed(bootstrap, f"{name}-few"), committed(bootstrap, f"{name}-same")
    assert sorted(message.value() for message in few) == copies
    assert len({message.partition() for message in few}) == 1, "the key decides"
    assert {message.timestamp()[1] for message in few} == {1_700_000_000_000}
    assert [(message.partition(), message.value()) for message in same] == list(zip(partitions, copies, strict=True))
