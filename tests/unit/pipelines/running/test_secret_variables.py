"""Passwords that contain `$`: variables are substituted once, and their values are neither parsed again nor printed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ottla.cli.sql.pipelines import write_pipeline
from ottla.pipelines import pipeline, topic
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.loading import load_pipeline
from ottla.pipelines.running.sink_factory import Setting, check_places, make_sink
from ottla.pipelines.sinks.database import PostgresSink
from ottla.pipelines.sinks.http_sink import HttpSink
from ottla.pipelines.sinks.redis_database import RedisSink
from ottla.pipelines.sinks.sqlalchemy_database import SqlAlchemySink

SECRETS = ["pa$HOME", "a${HOME}b", "${NOT_SET}x", "a$$b", "$", "${", "$${HOME}"]
FILE = """\
name: views
from: {topic: site}
to:
  - {postgres: "postgresql://u:${SECRET}@h/d", table: t}
  - {sqlalchemy: "postgresql+psycopg://u:${SECRET}@h/d", table: t}
  - {redis: "redis://:${SECRET}@h:6379/0", table: t, key: id, mode: upsert}
  - {http: "http://h/${SECRET}", headers: {Authorization: "Bearer ${SECRET}"}}
"""


def addresses(found: Pipeline) -> list[str]:
    """In the form of the sinks."""
    made = [make_sink(spec, at, Setting(found, "")) for at, spec in enumerate(found.streams["main"].sinks)]
    assert isinstance(made[0], PostgresSink)
    assert isinstance(made[1], SqlAlchemySink)
    assert isinstance(made[2], RedisSink)
    assert isinstance(made[3], HttpSink)
    request = made[3].request
    return [made[0].connection, made[1].url, made[2].url, request.url, request.headers["Authorization"]]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_password_comes_to_the_sinks_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("SECRET", secret)
    monkeypatch.delenv("NOT_SET", raising=False)
    (tmp_path / "p.yaml").write_text(FILE)
    found = load_pipeline(tmp_path / "p.yaml").pipeline
    check_places(found)
    assert [secret in each for each in addresses(found)] == [True] * 5
    written = topic("site")
    for sink in yaml.safe_load(FILE)["to"]:
        written = written.to(**sink)
    assert [secret in each for each in addresses(pipeline("views", written).model())] == [True] * 5


def test_a_variable_that_is_not_set_is_named_in_a_pipeline_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    stream = topic("site").to(redis="redis://:${NOT_SET}@h:6379/0", table="t")
    with pytest.raises(PipelineError, match="the variable NOT_SET is not set"):
        pipeline("views", stream).model()


@pytest.mark.parametrize("secret", SECRETS)
def test_a_password_of_the_prompt_is_the_same_in_the_file_that_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.chdir(tmp_path)
    document: dict[str, object] = {"name": "views", "from": {"topic": "site"}, "to": "console"}
    file = write_pipeline({**document, "client": {"sasl.password": secret}}, tmp_path / "state", or_replace=False)
    assert load_pipeline(file).pipeline.fields.client["sasl.password"] == secret
