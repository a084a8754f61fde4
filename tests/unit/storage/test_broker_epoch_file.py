"""Which life a folder goes on with."""

from pathlib import Path

import pytest

from ottla.storage.broker_epoch_file import (
    FILE_NAME,
    UNKNOWN,
    current_boot_id,
    has_lived_in_cluster,
    note_life,
    previous_life,
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
        log_dir.look_around()


def test_a_crash_of_the_process_alone_loses_nothing(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    note_life(dirs, 7, "boot")
    look(dirs)
    assert previous_life(dirs, "boot") == 7
    assert previous_life(dirs, "another boot") == UNKNOWN
    assert previous_life(dirs, "") == UNKNOWN


def test_a_clean_stop_counts_over_any_boot(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    note_life(dirs, 7, "boot")
    for log_dir in dirs:
        write_clean_shutdown_marker(log_dir.path, 8)
    look(dirs)
    assert previous_life(dirs, "another boot") == 8


def test_a_folder_that_was_wiped_tells_of_loss(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    note_life(dirs, 7, "boot")
    (tmp_path / "disk1" / FILE_NAME).unlink()
    look(dirs)
    assert previous_life(dirs, "boot") == UNKNOWN


def test_folders_of_different_lives_tell_of_loss(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    note_life(dirs[:1], 7, "boot")
    note_life(dirs[1:], 6, "boot")
    assert previous_life(dirs, "boot") == UNKNOWN


def test_a_folder_that_is_out_of_service_does_not_count(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    note_life(dirs, 7, "boot")
    dirs[1].failure = "broken"
    (tmp_path / "disk1" / FILE_NAME).unlink()
    assert previous_life(dirs, "boot") == 7


@pytest.mark.parametrize("text", ["", "[]", "{", '{"broker_epoch":"x","boot_id":"boot"}', '{"boot_id":"boot"}'])
def test_a_damaged_file_tells_of_loss(tmp_path: Path, text: str) -> None:
    dirs = folders(tmp_path, 1)
    (tmp_path / "disk0" / FILE_NAME).write_text(text)
    assert previous_life(dirs, "boot") == UNKNOWN


def test_this_machine_has_a_boot_id() -> None:
    assert current_boot_id() == current_boot_id() != ""


def test_a_folder_tells_whether_it_was_in_a_cluster(tmp_path: Path) -> None:
    dirs = folders(tmp_path)
    assert not has_lived_in_cluster(dirs)
    note_life(dirs[1:], 7, "boot")
    assert has_lived_in_cluster(dirs)
