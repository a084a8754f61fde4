"""Looking into a metadata store from outside: read-only, beside its broker and without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.cli.commands import metadata
from ottla.cli.commands.metadata import checked_path
from ottla.cli.terminal import ToolError
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tree = opened(tmp_path)
    tree.multi([CreateNode("/brokers"), CreateNode("/brokers/ids"), CreateNode("/brokers/ids/1", b'{"port":9092}')])
    tree.close()
    return tmp_path


def opened(folder: Path) -> SqliteTree:
    tree = SqliteTree(str(folder / "ottla.metadata.db"))
    tree.open()
    return tree


def shown(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    assert metadata.run([*words, "--data", str(folder)]) == 0
    return capsys.readouterr().out


def test_nodes_are_listed_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, folder, "ls", "/brokers") == "[ids]\n"
    assert shown(capsys, folder, "get", "/brokers/ids/1") == '{"port":9092}\n'
    assert shown(capsys, folder, "tree", "/") == '/\n  brokers\n    ids\n      1  {"port":9092}\n'
    assert "dataVersion = 0\ndataLength = 13\nnumChildren = 0\n" in shown(capsys, folder, "get", "-s", "/brokers/ids/1")
    assert sorted(os.listdir(folder)) == ["ottla.metadata.db", "ottla.metadata.reserve"]


def test_a_running_broker_is_no_obstacle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = opened(folder)
    writer.multi([CreateNode("/new", b"n")])
    assert shown(capsys, folder, "get", "/new") == "n\n"
    writer.multi([CreateNode("/newer", b"m")])
    assert shown(capsys, folder, "get", "/newer") == "m\n"
    writer.close()


def test_the_folder_of_ottla_up_is_known(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker").mkdir()
    (folder / "ottla.metadata.db").rename(tmp_path / "broker" / "ottla.metadata.db")
    assert shown(capsys, tmp_path, "ls") == "[brokers]\n"


def test_what_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Node does not exist: /nope"):
        metadata.run(["get", "/nope", "--data", str(folder)])
    with pytest.raises(ToolError, match=r"there is no ottla\.metadata\.db in"):
        metadata.run(["ls", "--data", str(tmp_path / "nowhere")])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ottla.metadata.db").write_bytes(b"garbage" * 100)
    with pytest.raises(ToolError, match="cannot be used as metadata store"):
        metadata.run(["ls", "--data", str(tmp_path / "other")])


def test_paths_are_checked() -> None:
    assert checked_path("/") == checked_path("") == "/"
    assert checked_path("brokers/ids/") == "/brokers/ids"
    for text in ("/a//b", "/a/../b"):
        with pytest.raises(ToolError, match="is no path"):
            checked_path(text)
