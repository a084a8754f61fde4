"""Which pipelines start Java before their file is read: only ordinary ones."""

from pathlib import Path

import pytest

from ottla.cli.commands.pipeline import parser
from ottla.cli.pipelines.early import Guess, likely_session, sql_session
from ottla.pipelines.trials import settings as trials

PLAIN = "name: orders-by-day\nfrom: {topic: orders}\nto: console\n"


def name_for(tmp_path: Path, text: str, *words: str, file: str = "p.yaml") -> str | None:
    (tmp_path / file).write_text(text)
    guess = likely_session(parser().parse_args(["run", str(tmp_path / file), *words]))
    return None if guess is None else guess.name


def test_an_ordinary_pipeline_is_known_by_its_name(tmp_path: Path) -> None:
    assert name_for(tmp_path, PLAIN) == "orders-by-day"
    assert name_for(tmp_path, PLAIN, "--once", "--set", "every=5 seconds") == "orders-by-day"


@pytest.mark.parametrize(
    "text",
    [
        "from: {topic: orders}\nto: console\n",
        "name: ${NAME}\nfrom: {topic: orders}\nto: console\n",
        PLAIN.replace("to: console", "to: {delta: rows}"),
        PLAIN.replace("to: console", "to: {parquet: 's3a://bucket/rows'}"),
        PLAIN.replace("orders}", "orders, connector: jvm}"),
        f"{PLAIN}latency: realtime\n",
        f"{PLAIN}spark: {{spark.driver.memory: 2g}}\n",
    ],
)
def test_what_needs_another_java_is_not_guessed(tmp_path: Path, text: str) -> None:
    assert name_for(tmp_path, text) is None


@pytest.mark.parametrize(
    "words",
    [
        ["--env", "prod"],
        ["--connector", "jvm"],
        ["--set", "spark.driver.memory=2g"],
        ["--checkpoint", "s3a://bucket/checkpoints"],
        ["another.yaml"],
    ],
)
def test_so_are_options_that_change_it(tmp_path: Path, words: list[str]) -> None:
    assert name_for(tmp_path, PLAIN, *words) is None


def test_a_python_file_and_a_missing_one_give_no_guess(tmp_path: Path) -> None:
    assert name_for(tmp_path, PLAIN, file="p.py") is None
    assert likely_session(parser().parse_args(["run", str(tmp_path / "missing.yaml")])) is None


def test_a_preview_and_a_test_have_their_own_sessions(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAIN)
    file = str(tmp_path / "p.yaml")
    assert likely_session(parser().parse_args(["preview", file, "--master", "local[1]"])) == Guess(
        "orders-by-day", "local[1]", {}, is_lean=True
    )
    assert likely_session(parser().parse_args(["test", file, "one case"])) == Guess(
        "trials", None, trials.ALL_SETTINGS, is_lean=True, work="trials"
    )
    assert likely_session(parser().parse_args(["test", file, "--set", "spark.driver.memory=2g"])) is None


@pytest.mark.parametrize("step", ["python: {function: a.py:f}", "stateful: {}", "filter: {classifier: {model: m}}"])
def test_code_of_ones_own_may_need_all_of_spark(tmp_path: Path, step: str) -> None:
    (tmp_path / "p.yaml").write_text(f"{PLAIN}steps:\n  - {step}\n")
    guess = likely_session(parser().parse_args(["run", str(tmp_path / "p.yaml")]))
    assert guess is not None
    assert not guess.is_lean
    assert guess.work == "streams"


def test_sql_that_returns_rows_needs_spark(tmp_path: Path) -> None:
    assert sql_session("local[1]", "Select 1 FROM t") == Guess("ottla-sql", "local[1]", {}, is_lean=True)
    assert sql_session(None, None) == Guess("ottla-sql", None, {}, is_lean=True)
    assert sql_session(None, "SHOW TOPICS; DESCRIBE selected") is None
