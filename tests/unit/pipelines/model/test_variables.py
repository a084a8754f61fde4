"""Variables and environments: substitution and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.pipelines.model.pipeline import TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.sink_specs import TopicSink
from ottla.pipelines.model.variables import substitute_variables
from ottla.pipelines.running.loading import load_pipeline, parse_change

FILE = """\
name: p
bootstrap.servers: ${KAFKA:127.0.0.1:9092}
from: {topic: "${PREFIX:dev}-in", max_per_batch: "${MOST:100}", fail_on_data_loss: "${STRICT:true}"}
to:
  - {topic: out}
environments:
  prod:
    bootstrap.servers: ${KAFKA}
    to.1.topic: out-prod
  bad:
    spark.driver.extraJavaOptions: -agentpath:/x
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KAFKA", "PREFIX", "MOST", "STRICT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "p.yaml").write_text(FILE)
    return tmp_path / "p.yaml"


def refused(file: Path, environment: str | None = None) -> list[str]:
    with pytest.raises(PipelineError) as raised:
        load_pipeline(file, environment=environment)
    return [line.replace(f"{file.parent}/", "") for line in raised.value.texts()]


def test_text_numbers_and_switches_come_from_variables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIX", "0123")  # text stays unchanged
    monkeypatch.setenv("MOST", "7")
    monkeypatch.setenv("STRICT", "false")
    made = load_pipeline(file).pipeline
    origin = made.streams["main"].origin

    assert made.fields.bootstrap_servers == "127.0.0.1:9092"
    assert isinstance(origin, TopicSource)
    assert (list(origin.topic), origin.max_per_batch, origin.fail_on_data_loss) == (["0123-in"], 7, False)


def test_a_number_that_is_none_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOST", "many")

    assert refused(file) == [
        "p.yaml:3: from, max_per_batch: 'many' is not a whole number; most records in one micro-batch"
    ]


def test_an_environment_changes_the_file_and_the_command_line_changes_both(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", "kafka:9092")
    made = load_pipeline(file, dict([parse_change("bootstrap-servers=mine:1")]), "prod").pipeline
    (sink,) = made.streams["main"].sinks

    assert isinstance(sink, TopicSink)
    assert (made.fields.bootstrap_servers, sink.topic) == ("mine:1", "out-prod")


def test_unset_variables_are_reported_with_their_lines(file: Path) -> None:
    assert refused(file, "prod") == [
        "p.yaml:2: bootstrap.servers: the variable KAFKA is not set; set it, or give a default: ${KAFKA:…}"
    ]
    assert load_pipeline(file).pipeline.name == "p"  # variables of unselected environments are not needed


def test_a_missing_environment_and_one_for_python_are_refused(file: Path) -> None:
    assert refused(file, "prd") == ["p.yaml:1: --env: there is no environment 'prd'; did you mean 'prod'?"]
    (file.parent / "p.py").write_text("")
    assert "os.environ" in refused(file.parent / "p.py", "prod")[0]


def test_an_environment_has_the_limits_of_a_file(file: Path) -> None:
    assert "which can run any code" in refused(file, "bad")[0]


def test_the_command_line_takes_an_environment(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pipeline", "check", str(file), "--offline"]

    assert main(arguments) == 0
    assert main([*arguments, "--env", "prod"]) == 2
    assert "the variable KAFKA is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a ${X} b", "a 1 b"),
        ("${X}${Y:2}", "12"),
        ("${E}", ""),
        ("${Y:}", ""),
        ("$${X}", "${X}"),
        ("$X", "$X"),
        ("a$", "a$"),
        ("${Y:a:b}", "a:b"),
    ],
)
def test_how_text_is_read(text: str, made: str) -> None:
    assert substitute_variables({"k": [text]}, {"X": "1", "E": ""}) == {"k": [made]}


@pytest.mark.parametrize("text", ["${", "${}", "${a-b}", "x ${1}", "${X"])
def test_an_invalid_variable_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="is not a variable"):
        substitute_variables(text, {"X": "1"})
