"""Topics of the same name and another id, between two runs of a query."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, TopicSource, read_pipeline
from ottla.pipelines.running import topic_notes
from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.running.topic_notes import check_same_topics, note_topics
from ottla.pipelines.steps.step_table import STEPS

FILE = """\
name: p
bootstrap.servers: h:1
from: {topic: in}
to: [{topic: out}, {topic: again, delivery: at-least-once}]
"""


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"in": "1", "out": "2", "again": "3"}

    def topic_ids(_pipeline: Pipeline, source: TopicSource) -> dict[str, str]:
        return {topic: found[topic] for topic in source.topic if topic in found}

    monkeypatch.setattr(topic_notes, "topic_ids", topic_ids)
    return found


def check(folder: str) -> dict[str, str]:
    pipeline = read_pipeline(parse_document(FILE, "p.yaml").values, STEPS, ".")
    return check_same_topics(pipeline, next(iter(pipeline.queries())), folder)


@pytest.mark.parametrize("topic", ["out", "again"])
def test_a_topic_that_is_written_to_must_be_the_same(topic: str, ids: dict[str, str], tmp_path: Path) -> None:
    """Also at least once: rows may be duplicated, but not lost."""
    note_topics(str(tmp_path), check(str(tmp_path)))
    ids["in"] = "9"  # checked by the source
    assert check(str(tmp_path)) == {"h:1 out": "2", "h:1 again": "3"}
    ids[topic] = "9"
    with pytest.raises(CheckpointError, match=f"topic {topic} was deleted and recreated since the last run of p"):
        check(str(tmp_path))


def test_a_topic_without_id_is_not_compared(ids: dict[str, str], tmp_path: Path) -> None:
    note_topics(str(tmp_path), check(str(tmp_path)))
    del ids["out"], ids["again"]  # brokers before 2.8 have no topic ids
    assert check(str(tmp_path)) == {}


def test_a_damaged_note_is_not_guessed(ids: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "topic-ids").write_text("{")
    with pytest.raises(CheckpointError, match="topic-ids is damaged"):
        check(str(tmp_path))


def test_where_the_source_cannot_note_its_topics_they_are_noted_here(
    ids: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_notes, "local_path", lambda _folder: None)
    note_topics(str(tmp_path), check(str(tmp_path)))
    ids["in"] = "9"
    with pytest.raises(CheckpointError, match="topic in was deleted and recreated"):
        check(str(tmp_path))
