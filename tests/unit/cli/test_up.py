"""`ottla up`: its folder, its settings, its banner."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ottla.cli.commands import up
from ottla.cli.commands.up import Screen, banner, broker_settings, prepare_folder
from ottla.cli.processes.supervisor import Child
from ottla.cli.terminal import ToolError


def options(data: Path, **details: object) -> argparse.Namespace:
    return argparse.Namespace(**({"data": str(data), "port": 9092, "no_auto_create": False, "override": []} | details))


def test_the_broker_is_only_reachable_from_this_machine(tmp_path: Path) -> None:
    settings = broker_settings(options(tmp_path))
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert settings["max.connections.per.ip"] == "200"
    assert settings["log.dirs"] == str(tmp_path / "broker")
    assert settings["auto.create.topics.enable"] == "true"


def test_overrides_of_the_user_win(tmp_path: Path) -> None:
    settings = broker_settings(options(tmp_path, no_auto_create=True, override=["num.partitions=3", "node.id=7"]))
    assert settings["auto.create.topics.enable"] == "false"
    assert (settings["num.partitions"], settings["node.id"]) == ("3", "7")


def test_a_new_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    prepare_folder(data)
    assert (data / "broker").stat().st_mode & 0o777 == 0o700
    prepare_folder(data)  # a second start


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    for name in "dcba":
        (tmp_path / name).touch()
    with pytest.raises(ToolError, match=r"holds other files \(a, b, c, \.\.\.\): choose an empty or new folder"):
        prepare_folder(tmp_path)
    assert not (tmp_path / "broker").exists()


def test_the_log_folder_of_a_broker_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with pytest.raises(ToolError, match=r"ottla broker --override log.dirs="):
        prepare_folder(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="is not a folder"):
        prepare_folder(tmp_path / "file")
    with pytest.raises(ToolError, match=r"cannot use .* as data folder: not a directory"):
        prepare_folder(tmp_path / "file" / "below")


def test_the_ready_line_is_followed_by_a_banner_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(tmp_path)
    child = Child("broker", [])
    assert not screen.on_line(child, "something else")
    assert screen.on_line(child, "ottla broker 1 ready on 127.0.0.1:9092")
    assert screen.on_line(child, "ottla broker 1 ready on 127.0.0.1:9092")
    printed = capsys.readouterr().out
    assert printed.startswith("something else\nottla broker 1 ready on 127.0.0.1:9092\n")
    assert printed.count("is up.") == 1


def test_the_banner_shows_next_commands(tmp_path: Path) -> None:
    text = banner("127.0.0.1:9192", tmp_path, is_coloured=False)
    assert "export OTTLA_BOOTSTRAP_SERVER=127.0.0.1:9192" in text
    assert "\x1b" not in text
    assert "OTTLA_BOOTSTRAP_SERVER" not in banner("127.0.0.1:9092", tmp_path, is_coloured=False)


def test_a_metrics_port_in_use_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "metrics_settings", dict)
    monkeypatch.setattr(up, "check_port", lambda _: None)
    monkeypatch.setattr(up.Supervisor, "run", lambda _: 0)
    assert up.run(["--data", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().err.startswith("No metrics endpoint: port 9404 is in use.")
    assert up.run(["--data", str(tmp_path / "data"), "--override", "ottla.metrics.port=0"]) == 0
    assert capsys.readouterr().err == ""
