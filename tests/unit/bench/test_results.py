"""What a run keeps, and when it may be published."""

from pathlib import Path
from typing import Any

from bench.options import SECTIONS, SYSTEMS
from bench.results import Results


def whole_run(**changes: Any) -> Results:
    options = {"sections": SECTIONS, "systems": SYSTEMS, "is_non_blocking": False}
    return Results({"options": options | changes, "is_complete": changes.get("is_complete", True)})


def test_only_the_whole_benchmark_is_published() -> None:
    assert whole_run().is_publishable
    assert not whole_run(is_non_blocking=True).is_publishable
    assert not whole_run(sections=("sync",)).is_publishable
    assert not whole_run(systems=("ottla",)).is_publishable
    assert not whole_run(is_complete=False).is_publishable


def test_figures_of_one_section_come_together_from_several_calls() -> None:
    results = Results({})
    results.add(1, "ottla", "sync", {"raw": {"p50_ms": 1.0}})
    results.add(1, "ottla", "sync", {"librdkafka": {"p50_ms": 2.0}})
    assert results.rounds == [{}, {"ottla": {"sync": {"raw": {"p50_ms": 1.0}, "librdkafka": {"p50_ms": 2.0}}}}]
    assert results.values("ottla", "sync.raw.p50_ms") == [1.0]


def test_what_is_saved_can_be_read_again(tmp_path: Path) -> None:
    results = Results({"rounds": []})
    results.add(0, "kafka", "sync", {"raw": {"p50_ms": 1.0}})
    results.fail(0, "kafka", "raw", "it died")
    results.save(tmp_path / "new" / "results.json")
    loaded = Results.load(tmp_path / "new" / "results.json")
    assert loaded.data == results.data
    assert loaded.failures == ["round 1, kafka, raw: it died"]
