"""Data folders of test brokers: removed by their owner, or by the next one if the owner was killed."""

from pathlib import Path

from ottla.testing.folders import LOCK, PREFIX, UNFINISHED, Folder


def test_a_folder_is_gone_after_remove(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (folder.path / "data").mkdir()
    folder.remove()
    assert not list(tmp_path.iterdir())


def test_remove_can_be_called_twice(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.remove()
    folder.remove()


def test_an_unlocked_folder_is_removed_by_the_next_owner(tmp_path: Path) -> None:
    abandoned = tmp_path / f"{PREFIX}abandoned"
    abandoned.mkdir()
    (abandoned / LOCK).touch()
    folder = Folder(tmp_path)
    assert list(tmp_path.iterdir()) == [folder.path]
    folder.remove()


def test_locked_and_unfinished_folders_stay(tmp_path: Path) -> None:
    in_the_making = tmp_path / f"{UNFINISHED}x"
    in_the_making.mkdir()
    first = Folder(tmp_path)
    second = Folder(tmp_path)
    assert set(tmp_path.iterdir()) == {in_the_making, first.path, second.path}
    first.remove()
    second.remove()
