"""`ottla pipeline preview`, `check` and `infer` read a real topic and leave nothing behind."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.cli.main import main

PIPELINE = """
name: {name}
bootstrap.servers: {bootstrap}
streams:
  events:
    from: {{topic: {name}}}
    steps:
      - parse: {{format: json, schema: {{page: string, n: long, at: timestamp}}}}
      - filter: {{where: "n < 9"}}
  views:
    from: events
    steps:
      - watermark: {{time: at, delay: 10 seconds}}
      - window: {{size: 1 minute, by: [page], count: views}}
    to:
      - {{topic: {name}-out}}
      - {{sqlite: views.db, table: views}}
"""


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        value = {"page": f"/{number % 2}", "n": number, "at": "2026-01-01T10:00:00Z" if number else None}
        producer.produce(topic, value=json.dumps(value))
    producer.produce(topic, value="hello")
    producer.flush()


def test_a_preview_shows_each_step_and_leaves_nothing_behind(
    spark: object, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    name = f"preview-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, name)
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.format(name=name, bootstrap=bootstrap))
    capsys.readouterr()

    assert main(["pipeline", "preview", str(file), "--rows", "2", "--json"]) == 0

    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["stream"], each["step"], each["living"], each["filtered"], each["dead"]) for each in looks] == [
        ("events", "from", 11, 0, 0),
        ("events", "parse", 10, 0, 1),
        ("events", "filter", 9, 1, 0),
        ("views", "watermark", 8, 0, 1),
        ("views", "window", 2, 0, 0),
    ]
    assert looks[1]["reason"] == 'not JSON: "hello"'
    assert looks[2]["columns"] == ["page", "n", "at"]
    assert len(looks[2]["rows"]) == 2
    assert [file] == list(tmp_path.iterdir())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert [topic for topic in admin.list_topics(timeout=10).topics if name in topic] == [name]
    groups = admin.list_consumer_groups().result().valid
    assert [group.group_id for group in groups if name in group.group_id] == []


def test_what_the_file_does_not_declare_is_checked_by_spark(
    spark: object, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    name = f"check-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, name)
    file = tmp_path / "p.yaml"
    steps = 'steps: [{sql: "SELECT string(value) AS text FROM stream"}, {filter: "word = 1"}]'
    file.write_text(f"name: p\nbootstrap.servers: {bootstrap}\nfrom: {{topic: {name}}}\n{steps}\nto: console\n")
    capsys.readouterr()

    assert main(["pipeline", "check", str(file)]) == 0
    told = "Checked: the file, declared columns, topics. Not checked: columns after step 1, sql, what only Spark knows"
    assert told in capsys.readouterr().out
    assert main(["pipeline", "check", str(file), "--spark"]) == 2
    assert "p.yaml:4: step 2, filter: there is no column 'word'" in capsys.readouterr().err
    file.write_text(file.read_text().replace("word = 1", "text = 1"))
    assert main(["pipeline", "check", str(file), "--spark"]) == 0
    assert "topics, columns and conditions, with Spark." in capsys.readouterr().out


def test_a_schema_is_inferred_without_spark(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"infer-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, name)

    assert main(["pipeline", "infer", name, "--bootstrap-server", bootstrap]) == 0

    out = capsys.readouterr().out
    (step,) = yaml.safe_load(out)
    assert step == {"parse": {"format": "json", "schema": {"page": "string", "n": "bigint", "at": "timestamp"}}}
    assert f"# {name}: 11 samples, 10 of them read as json" in out
    assert "null or missing in 1 of 10" in out
    assert main(["pipeline", "infer", f"{name}-not", "--bootstrap-server", bootstrap]) == 1
    assert "there is no such topic" in capsys.readouterr().err
