"""The benchmark's command line."""

import pytest
from bench.errors import BenchError
from bench.options import SECTIONS, read_options


def test_by_default_everything_is_measured_on_both_systems_in_three_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.options.missing_tools", list)
    options = read_options([])
    assert (options.sections, options.systems, options.rounds) == (SECTIONS, ("kafka", "ottla"), 3)


def test_chosen_sections_run_in_their_usual_order() -> None:
    options = read_options(["--no-kafka", "--only", "scale,sync"])
    assert (options.sections, options.systems) == (("sync", "scale"), ("ottla",))


def test_long_sections_are_measured_in_the_first_round_only() -> None:
    options = read_options(["--no-kafka", "--only", "sync,scale,restart,spark"])
    assert options.sections_of(0) == ("sync", "scale", "restart", "spark")
    assert options.sections_of(1) == options.sections_of(2) == ("sync",)


def test_an_unknown_section_is_named_with_the_known_ones() -> None:
    with pytest.raises(BenchError, match="unknown: warp; known are startup"):
        read_options(["--no-kafka", "--only", "warp"])


def test_without_java_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.options.missing_tools", lambda: ["java", "mvn"])
    with pytest.raises(BenchError, match=r"java and mvn.*--no-kafka"):
        read_options(["--systems", "kafka"])
