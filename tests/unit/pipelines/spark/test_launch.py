"""The decisive line in the last output of a Java process."""

from pathlib import Path

import pytest

from ottla.pipelines.spark.launch import LOGS_MAX, cause_in, default_log_file, log_settings_file

TRACE = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalArgumentException: System memory 10 must be at least 471859200. Please increase heap size.
\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:217)
Caused by: java.net.BindException: Cannot assign requested address
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TRACE, "Cannot assign requested address"),
        ("Error: Could not find or load main class X\nCaused by nothing", "Could not find or load main class X"),
        ("Invalid maximum heap size: -Xmx9999999g\n", "Invalid maximum heap size: -Xmx9999999g"),
        ("", ""),
    ],
)
def test_the_decisive_line_is_found(text: str, cause: str) -> None:
    assert cause_in(text) == cause


def test_a_cause_is_never_longer_than_a_few_lines() -> None:
    assert len(cause_in("x" * 10_000)) == 400


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_log_files_are_bounded_in_number_and_named_after_the_session() -> None:
    folder = default_log_file("a/../b c").parent
    for number in range(LOGS_MAX + 5):
        (folder / f"old-{number}.log").write_text("x")
    file = default_log_file("a/../b c")
    assert file.parent == folder
    assert file.name.startswith("a-..-b-c-")
    assert len(list(folder.iterdir())) == LOGS_MAX


def test_log_settings_are_renewed_when_they_are_not_ours() -> None:
    file = log_settings_file()
    written = file.read_text()
    file.write_text("rootLogger.level = trace")
    assert log_settings_file().read_text() == written


def test_a_log_that_another_session_has_just_removed_is_no_reason_not_to_start() -> None:
    folder = default_log_file("views").parent
    (folder / "gone.log").symlink_to(folder / "nowhere")  # listed, but missing when it is read
    assert default_log_file("views").parent == folder
