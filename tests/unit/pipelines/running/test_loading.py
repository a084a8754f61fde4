"""Loading a pipeline: YAML and Python, changes from the command line, and problems with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipelines.model.pipeline import TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.running.loading import change_path, changed_document, load_pipeline, parse_change

YAML = """\
name: p
bootstrap.servers: a:1
from: {topic: t}
steps:
  - filter: x > 1
to:
  - {topic: out}
"""
PYTHON = """\
from ottla.pipelines import pipeline, topic
pipeline("p", topic("t").filter("x > 1").to(topic="out"), bootstrap_servers="a:1")
"""


def file(tmp_path: Path, text: str, name: str = "p.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_yaml_and_python_give_the_same(tmp_path: Path) -> None:
    one = load_pipeline(file(tmp_path, YAML, "p.yaml")).pipeline
    other = load_pipeline(file(tmp_path, PYTHON)).pipeline
    assert (one.fields, one.folder) == (other.fields, other.folder) == (other.fields, str(tmp_path))
    assert one.streams["main"]._replace(path=()) == other.streams["main"]._replace(path=())


@pytest.mark.parametrize("text", [YAML, PYTHON])
def test_the_command_line_changes_fields(tmp_path: Path, text: str) -> None:
    streams = "" if text == YAML else "streams.main."
    changes = ["every=5 seconds", "bootstrap-servers=b:2", "spark.sql.ansi.enabled=true", f"{streams}from.topic=[u, v]"]
    changes.append(f"{streams}to.1.topic=other")
    path = file(tmp_path, text, "p.yaml" if text == YAML else "p.py")
    made = load_pipeline(path, dict(map(parse_change, changes))).pipeline
    origin = made.streams["main"].origin
    assert isinstance(origin, TopicSource)
    assert (made.fields.every, made.fields.bootstrap_servers) == (Duration(5000), "b:2")
    assert made.fields.spark == {"spark.sql.ansi.enabled": "true"}
    assert tuple(origin.topic) == ("u", "v")
    assert getattr(made.streams["main"].sinks[0], "topic", None) == "other"


def test_nothing_changes_what_an_error_is(tmp_path: Path) -> None:
    path = file(tmp_path, YAML, "p.yaml")
    with pytest.raises(PipelineError, match="on_error"):
        load_pipeline(path, dict([parse_change("spark.sql.ansi.enabled=false")]))


@pytest.mark.parametrize("change", ["streams.main.nothing=1", "to.7.topic=x", "name.x=1", "evry=1 s"])
def test_a_change_that_leads_nowhere_is_refused(tmp_path: Path, change: str) -> None:
    with pytest.raises(PipelineError):
        load_pipeline(file(tmp_path, YAML, "p.yaml"), dict([parse_change(change)]))


@pytest.mark.parametrize("text", ["every", "=5", "every=[", " = "])
def test_a_change_is_key_and_value(text: str) -> None:
    with pytest.raises(ValueError):
        parse_change(text)


def test_settings_keep_their_dots() -> None:
    assert change_path("bootstrap.servers") == ("bootstrap_servers",)
    assert change_path("client.security.protocol") == ("client", "security.protocol")
    assert change_path("streams.a.to.1.topic") == ("streams", "a", "to", 1, "topic")


def test_a_file_may_not_set_code_but_the_command_line_may(tmp_path: Path) -> None:
    path = file(tmp_path, YAML + "spark:\n  spark.driver.extraJavaOptions: -agentpath:x\n", "p.yaml")
    with pytest.raises(PipelineError, match=r"p.yaml:9: spark, spark.driver.extraJavaOptions: a pipeline file may not"):
        load_pipeline(path)
    load_pipeline(path, {"spark.driver.extraJavaOptions": "-Xint"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (\n", r"p.py:1: not readable as Python"),
        ("import nothing_of_that_name\n", r"p.py:1: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()\n", r"p.py:2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", r"p.py:1: SystemExit: 3"),
        ("x = 1\n", r"p.py: writes no pipeline; call pipeline"),
        (PYTHON + 'pipeline("q", topic("t"))\n', r"p.py: writes 2 pipelines \(p, q\)"),
        ("# \x00\n", r"p.py(:1)?: not readable as Python"),
    ],
)
def test_mistakes_in_python_name_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        load_pipeline(file(tmp_path, text))


def test_mistakes_in_yaml_name_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"p.yaml:5: step 1, filtr: there is no step"):
        load_pipeline(file(tmp_path, YAML.replace("filter", "filtr"), "p.yaml"))


@pytest.mark.parametrize("name", ["none.py", "none.yaml"])
def test_a_missing_file_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(PipelineError, match=rf"cannot read .*{name}: No such file"):
        load_pipeline(tmp_path / name)


def test_the_main_block_of_a_file_does_not_run(tmp_path: Path) -> None:
    load_pipeline(file(tmp_path, PYTHON + 'if __name__ == "__main__":\n    raise ValueError\n'))


def test_a_file_may_import_modules_beside_it(tmp_path: Path) -> None:
    file(tmp_path, "WHERE = 'x > 1'\n", "beside_the_pipeline.py")
    text = PYTHON.replace('"x > 1"', "WHERE").replace("import pipeline", "import pipeline").strip()
    assert load_pipeline(file(tmp_path, f"from beside_the_pipeline import WHERE\n{text}\n")).pipeline.name == "p"


def test_a_change_that_leads_nowhere_is_named() -> None:
    with pytest.raises(PipelineError, match=r"the change to\.2\.topic leads nowhere: there is no 2 in a list of 1"):
        changed_document({"to": [{"topic": "a"}]}, {"to.2.topic": "b"})
