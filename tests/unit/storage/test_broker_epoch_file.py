"""The broker epoch that a log directory continues."""

from pathlib import Path

import pytest

from ottla.storage.broker_epoch_file import (
    FILE_NAME,
    UNKNOWN,
    current_boot_id,
    previous_broker_epoch,
    was_cluster_broker,
    write_broker_epoch,
)
from ottla.storage.log_dir import LogDir, write_clean_shutdown_marker


def folders(tmp_path: Path, count: int = 2) -> list[LogDir]:
    dirs = []
    for number in range(count):
        path = tmp_path / f"disk{number}"
        path.mkdir(exist_ok=True)
        dirs.append(LogDir(str(path)))
    return dirs


def look(dirs: list[LogDir]) -> None:
    for log_dir in dirs:
        log_dir.scan()


def test_a_crash_of_the_process_alone_loses_nothing(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    write_broker_epoch(dirs, 7, "boot")
    look(dirs)
    assert previous_broker_epoch(dirs, "boot") == 7
    assert previous_broker_epoch(dirs, "another boot") == UNKNOWN
    assert previous_broker_epoch(dirs, "") == UNKNOWN


def test_a_clean_stop_counts_over_any_boot(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    write_broker_epoch(dirs, 7, "boot")
    for log_dir in dirs:
        write_clean_shutdown_marker(log_dir.path, 8)
    look(dirs)
    assert previous_broker_epoch(dirs, "another boot") == 8


def test_a_wiped_log_directory_means_loss(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    write_broker_epoch(dirs, 7, "boot")
    (tmp_path / "disk1" / FILE_NAME).unlink()
    look(dirs)
    assert previous_broker_epoch(dirs, "boot") == UNKNOWN


def test_log_directories_with_different_broker_epochs_mean_loss(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    write_broker_epoch(dirs[:1], 7, "boot")
    write_broker_epoch(dirs[1:], 6, "boot")
    assert previous_broker_epoch(dirs, "boot") == UNKNOWN


def test_a_folder_that_is_out_of_service_does_not_count(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    write_broker_epoch(dirs, 7, "boot")
    dirs[1].offline_reason = "broken"
    (tmp_path / "disk1" / FILE_NAME).unlink()
    assert previous_broker_epoch(dirs, "boot") == 7


@pytest.mark.parametrize("text", ["", "[]", "{", '{"broker_epoch":"x","boot_id":"boot"}', '{"boot_id":"boot"}'])
def test_a_damaged_file_means_loss(tmp_path: Path, text: str) -> None:
    dirs = folders(tmp_path, 1)
    (tmp_path / "disk0" / FILE_NAME).write_text(text)
    assert previous_broker_epoch(dirs, "boot") == UNKNOWN


def test_this_machine_has_a_boot_id() -> None:
    assert current_boot_id() == current_boot_id() != ""


def test_a_log_directory_shows_whether_it_was_in_a_cluster(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    assert not was_cluster_broker(dirs)
    write_broker_epoch(dirs[1:], 7, "boot")
    assert was_cluster_broker(dirs)
