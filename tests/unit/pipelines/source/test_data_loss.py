"""Reports of data loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.pipelines.source.data_loss import DataLossError, report_loss, take_reported_losses
from ottla.pipelines.source.options import Options, read_options

SENTENCE = "orders-0: offset 10 is not in the log"


def options(folder: Path, fails: str = "false") -> Options:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}
    return read_options({**given, "failOnDataLoss": fails, "lossFolder": str(folder)})


def test_a_loss_that_must_not_be_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataLossError, match="offset 10 is not in the log"):
        report_loss(options(tmp_path, "true"), SENTENCE)
    assert take_reported_losses(str(tmp_path)) == []


def test_a_permitted_loss_is_reported_once(tmp_path: Path) -> None:
    folder = tmp_path / "losses"
    for _ in range(3):
        report_loss(options(folder), SENTENCE)
    assert take_reported_losses(str(folder)) == [SENTENCE]
    assert take_reported_losses(str(folder)) == []


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    report_loss(options(tmp_path / "file" / "losses"), SENTENCE)
    assert take_reported_losses(str(tmp_path / "file" / "losses")) == []


def test_without_a_folder_no_folder_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.loss").write_text("not yours")
    monkeypatch.chdir(tmp_path)
    assert take_reported_losses("") == []
    assert (tmp_path / "mine.loss").exists()
