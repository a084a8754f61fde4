"""The page that a run writes over an older one."""

from pathlib import Path

from bench.report import kept_sections


def test_what_other_commands_have_measured_stays_behind_the_generated_part(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    assert kept_sections(page) == ""
    page.write_text("# Performance\n\n## End to end\n\nold\n\n## Three brokers\n\nkept\n\n## Pipelines\n\nkept, too\n")
    assert kept_sections(page) == "\n## Three brokers\n\nkept\n\n## Pipelines\n\nkept, too\n"
