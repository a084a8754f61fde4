"""The sources of statements of `ottla sql`: an invalid file is rejected before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "cannot read {file}: no such file or directory"),
        (b"SELECT '\xff' FROM orders", "{file} is not valid UTF-8"),
        (b"-" * ((1 << 20) + 1), "{file} is larger than 1 MiB: is it SQL?"),
    ],
)
def test_a_file_that_is_no_script(
    data: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.sql"
    if data is not None:
        file.write_bytes(data)
    assert main(["sql", "-f", str(file)]) == 2
    assert capsys.readouterr().err == f"ottla sql: {words.format(file=file)}\n"
