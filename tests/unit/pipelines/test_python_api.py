"""Pipelines written in Python: the same document as YAML, and errors with the caller's line."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from ottla.pipelines import PipelineError, pipeline, stream, topic
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.steps.step_table import STEPS

YAML = """
name: site
bootstrap.servers: b:1
streams:
  events:
    from: {topic: [site-events], starting: latest}
    steps:
      - filter: {where: "value IS NOT NULL"}
  pages:
    from: events
    steps:
      - filter: {where: "length(value) > 3"}
    to:
      - {topic: pages, key: topic}
      - {console: 5}
    output: update
"""


def line_here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_both_ways_to_write_give_the_same_pipeline() -> None:
    events = topic("site-events", starting="latest").filter("value IS NOT NULL").named("events")
    pages = events.filter(where="length(value) > 3").to(topic="pages", key="topic").to(console=5)
    written = pipeline("site", pages.output("update").named("pages"), bootstrap_servers="b:1").model()
    read = read_pipeline(parse_document(YAML, "f").values, STEPS, written.folder)
    assert written == read


def test_a_pipeline_with_one_stream_needs_no_name_for_it() -> None:
    made = pipeline("p", topic("a").to(console=1)).model()
    assert [stream.name for stream in made.queries()] == ["main"]


def test_streams_are_values() -> None:
    base = topic("a").filter("x > 1")
    base.filter("x > 2")
    assert len(pipeline("p", base.to(console=1)).model().streams["main"].steps) == 1


def test_a_mistake_in_a_step_names_the_line_of_its_call() -> None:
    line = line_here() + 3
    wrong = (
        topic("a")
        .filter(wher="x")
        .to(console=1)
    )  # fmt: skip
    with pytest.raises(PipelineError, match=rf"test_python_api.py:{line}: main, step 1, filter, wher: .*did you mean"):
        pipeline("p", wrong).model()


def test_a_mistake_in_a_sink_names_the_line_of_its_call() -> None:
    line = line_here() + 1
    wrong = topic("a").to(topik="x")
    with pytest.raises(PipelineError, match=rf"test_python_api.py:{line}: main, to, 1: "):
        pipeline("p", wrong).model()


def test_several_streams_must_have_names() -> None:
    with pytest.raises(PipelineError, match=r"a stream without a name; end it with \.named"):
        pipeline("p", topic("a").to(console=1), topic("b").to(console=1)).model()


def test_a_step_after_a_sink_is_a_stream_of_its_own_and_needs_a_name_before() -> None:
    with pytest.raises(PipelineError, match="a stream without a name"):
        pipeline("p", topic("a").to(console=1).filter("x > 1").to(console=2)).model()


def test_two_streams_cannot_have_one_name() -> None:
    with pytest.raises(PipelineError, match="there are two streams 's'"):
        pipeline("p", topic("a").to(console=1).named("s"), topic("b").to(console=1).named("s")).model()


def test_a_stream_can_be_named_before_it_is_written() -> None:
    made = pipeline("p", stream("b").to(console=1).named("a"), topic("t").filter("x").named("b")).model()
    assert made.streams["a"].origin == "b"


def test_an_unknown_step_is_named_with_a_guess() -> None:
    with pytest.raises(AttributeError, match="there is no step 'filtr'; did you mean 'filter'"):
        topic("a").filtr(where="x")


def test_only_the_first_field_may_go_without_its_name() -> None:
    with pytest.raises(TypeError, match="only the first, where, may be given without"):
        topic("a").filter("x", {"a": "b"})


def test_steps_have_the_signature_and_the_help_of_their_fields() -> None:
    method = topic("a").filter
    parameters = inspect.signature(method).parameters
    assert next(iter(parameters)) == "where"
    assert parameters["matches"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "where: SQL condition" in (method.__doc__ or "")
    assert {"filter", "named", "to"} <= set(dir(topic("a")))


def test_a_pipeline_without_streams_is_an_error() -> None:
    with pytest.raises(PipelineError, match="a pipeline without a stream"):
        pipeline("p").model()


def test_importing_it_does_not_import_spark() -> None:
    code = "import sys, ottla.pipelines; ottla.pipelines.topic('a').to(console=1); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
