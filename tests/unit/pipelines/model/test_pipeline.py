"""A document becomes a pipeline, or a list of problems."""

import pytest

from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.graph import build_graph, mermaid
from ottla.pipelines.model.pipeline import Pipeline, TopicSource, read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.sink_specs import SINKS, ConsoleSink, SqliteSink, TopicSink
from ottla.pipelines.steps.step_table import STEPS
from ottla.pipelines.trials.cases import place_names

FLAT = """\
name: views
from: {topic: events}
steps:
  - filter: page IS NOT NULL
to:
  topic: views
"""
STREAMS = """\
name: site
bootstrap.servers: "broker:9092"
streams:
  events:
    from: {topic: [events, more-events], starting: latest}
  views:
    from: events
    steps:
      - filter: {where: "page IS NOT NULL"}
    to:
      - {topic: views, key: page, delivery: exactly-once}
      - {sqlite: views.db, table: views}
  all:
    from: events
    to: console
"""


def read(text: str) -> Pipeline:
    return read_pipeline(parse_document(text, "file.yaml").values, STEPS)


def problems_of(text: str) -> list[str]:
    document = parse_document(text, "file.yaml")
    with pytest.raises(PipelineError) as caught:
        read_pipeline(document.values, STEPS)
    return [problem.text("file.yaml", document.lines) for problem in caught.value.problems]


def test_a_pipeline_of_one_stream_may_be_written_flat() -> None:
    pipeline = read(FLAT)
    (stream,) = pipeline.queries()
    assert stream.origin == TopicSource(topic=("events",))
    assert [step.name for step in stream.steps] == ["filter"]
    assert stream.sinks == (TopicSink(topic="views"),)
    assert pipeline.group_of(stream) == "ottla-pipeline-views"
    assert pipeline.dead_letter_topic == "views-dead-letters"


def test_streams_read_streams_and_go_to_several_sinks() -> None:
    pipeline = read(STREAMS)
    assert pipeline.fields.bootstrap_servers == "broker:9092"
    views, everything = pipeline.queries()
    assert [type(sink) for sink in views.sinks] == [TopicSink, SqliteSink]
    assert [type(sink) for sink in everything.sinks] == [ConsoleSink]
    assert [each.name for each in pipeline.ancestry(views)] == ["views", "events"]
    assert pipeline.sources_of(views)[0].topic == ("events", "more-events")
    assert pipeline.group_of(views) == "ottla-pipeline-site.views"


def test_all_problems_are_reported_with_their_lines() -> None:
    assert problems_of(FLAT.replace("filter:", "fliter:").replace("to:\n  topic", "to:\n  tropic")) == [
        "file.yaml:4: step 1, fliter: there is no step 'fliter'; did you mean 'filter'?",
        "file.yaml:5: to: has no target; name one of " + ", ".join(SINKS),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("from: events\n    to", "from: event\n    to"), "there is no stream 'event'; did you mean 'events'?"),
        (("{topic: [events, more-events], starting: latest}", "all"), "stream 'events' reads itself; break the cycle"),
        (("starting: latest", "startin: latest"), "unknown field 'startin'; did you mean 'starting'?"),
        (("topic: [events, more-events], ", ""), "needs either topic or pattern"),
        (("name: site", "name: ../site"), "'../site' is not a valid name"),
        (("table: views", "mode: upsert, table: views"), "upsert and key require each other"),
        (("{where:", "{were:"), "unknown field 'were'"),
        (("streams:", "stream:"), "unknown field 'stream'"),
    ],
)
def test_one_thing_wrong(change: tuple[str, str], expected: str) -> None:
    assert any(expected in text for text in problems_of(STREAMS.replace(*change)))


@pytest.mark.parametrize("text", ["", "- a\n- b", "just text", "5"])
def test_an_invalid_document_is_refused(text: str) -> None:
    assert problems_of(text)[0].endswith("a pipeline is a mapping; start with `name: …`")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("site-.*", "matches site-dead-letters, to which dead letters go"),
        ("late|orders", "matches late, to which late rows go"),
        ("views?", "matches views, to which rows of stream views go"),
    ],
)
def test_a_pattern_that_matches_a_written_topic_is_refused(pattern: str, expected: str) -> None:
    text = STREAMS.replace("topic: [events, more-events]", f"pattern: {pattern!r}")
    (problem,) = problems_of(text.replace("name: site", "name: site\nlate_rows: late"))
    assert problem.startswith("file.yaml:6: ")
    assert expected in problem


def test_a_pattern_may_match_topics_of_other_pipelines_and_clusters() -> None:
    text = STREAMS.replace("topic: [events, more-events]", "pattern: '[^s].*'")
    assert problems_of(text.replace("name: site", "name: site\ndead_letters: false"))
    elsewhere = text.replace("starting: latest", "bootstrap.servers: 'other:9092'")
    assert read(elsewhere).streams["events"].origin == TopicSource(pattern="[^s].*", bootstrap_servers="other:9092")
    assert read(STREAMS.replace("topic: [events, more-events]", "topic: [views]"))


def test_a_pipeline_without_an_end() -> None:
    assert any("no stream has a `to`" in text for text in problems_of(FLAT.split("to:", maxsplit=1)[0]))


def test_default_brokers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = {"name": "a", "from": {"topic": "t"}, "to": "console"}
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "elsewhere:9093")
    assert read_pipeline(flat, {}).fields.bootstrap_servers == "elsewhere:9093"
    assert read_pipeline({**flat, "bootstrap.servers": "here:1"}, {}).fields.bootstrap_servers == "here:1"
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "")
    assert read_pipeline(flat, {}).fields.bootstrap_servers == "127.0.0.1:9092"


def test_graphs_and_target_names_contain_no_secret() -> None:
    sinks = ['{http: "https://h/in?key=secret"}', '{sqlalchemy: "mysql+pymysql://me:secret@h/d", table: t}']
    pipeline = read("name: p\nfrom: {topic: a}\nto:\n" + "".join(f"  - {sink}\n" for sink in sinks))
    assert "secret" not in mermaid(build_graph(pipeline))
    assert [place.name for place in place_names(pipeline)] == ["https://h/in", "t"]
    assert "secret" not in repr(place_names(pipeline))
